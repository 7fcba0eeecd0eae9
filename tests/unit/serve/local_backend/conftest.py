"""What the tests of the local engine share."""

import pytest

from trt_spec.serve.local_backend.batcher import Batcher, Job


@pytest.fixture(scope="session")
def generate():
    """generate(engine, request, is_cancelled) -> the result of a request that runs alone; raises what it fails with."""

    def run_alone(engine, request, is_cancelled=lambda: False):
        outcomes = []
        batcher = Batcher(engine)
        batcher.submit(Job(request, outcomes.append, is_cancelled))
        while not batcher.is_idle:
            batcher.step()
        (outcome,) = outcomes
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return run_alone
