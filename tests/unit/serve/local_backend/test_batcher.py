"""Many requests at once on a real engine of a tiny model: each gets what it would have got alone."""

import shutil

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trt_spec.serve.local_backend import batcher as batcher_module
from trt_spec.serve.local_backend.batcher import Batcher, Job, RequestCancelled
from trt_spec.serve.local_backend.check_request import check_request
from trt_spec.serve.local_backend.engine import Engine
from trt_spec.serve.local_backend.scheduler import StepLimits, default_limits
from trt_spec.serve.local_backend.sequence import GenerateRequest, LogitsNotFinite
from trt_spec.serve.logit_rules import LogitRules
from trt_spec.serve.sampling import Sampling
from trt_spec.serve.triton_request import BadRequest

MAX_SEQ_LEN = 128
SMALLEST_GAP = 1e-3
LOGITS_TOLERANCE = 1e-3


class WatchedEngine(Engine):
    """Notes the lengths of the pieces of every pass, and fails where a piece holds ``poison``."""

    poison = -1

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.passes = []

    def forward(self, pieces):
        self.passes.append([len(piece.tokens) for piece in pieces])
        if any(self.poison in piece.tokens for piece in pieces):
            raise RuntimeError("poisoned")
        return super().forward(pieces)


@pytest.fixture(scope="module")
def open_engine(build_tiny_engine):
    """open_engine(rows) -> an engine whose KV cache holds so many sequences."""
    return lambda rows=4: WatchedEngine(build_tiny_engine("pair-target"), kv_tokens=rows * MAX_SEQ_LEN)


@pytest.fixture(scope="module")
def reference(tiny):
    """(prompt, 40 greedy tokens) pairs by transformers, whose best two logits differ enough for any order of sums."""
    stored = np.load(tiny / "pair-target" / "reference.npz")
    prompts = [[int(t) for t in row if t >= 0] for row in stored["prompts"]]
    pairs = zip(prompts, stored["greedy"].tolist(), stored["smallest_gap"], strict=True)
    return [(prompt, greedy) for prompt, greedy, gap in pairs if gap > SMALLEST_GAP]


def run(engine, jobs, limits=None):
    """Runs [(first step, request, step of the cancellation or None)]; their outcomes, in the same order."""
    batcher = Batcher(engine, limits)
    outcomes = [None] * len(jobs)
    clock = 0

    def job(index, request, cancelled_at):
        def deliver(outcome):
            assert outcomes[index] is None
            outcomes[index] = outcome

        return Job(request, deliver, lambda: cancelled_at is not None and clock >= cancelled_at)

    left = sorted(enumerate(jobs), key=lambda entry: entry[1][0])
    while left or not batcher.is_idle:
        while left and left[0][1][0] <= clock:
            index, (_, request, cancelled_at) = left.pop(0)
            batcher.submit(job(index, request, cancelled_at))
        batcher.step()
        clock += 1
        assert clock < 5000
    assert not any(row.is_running for row in engine.rows.rows)
    return outcomes


REQUESTS = st.tuples(
    st.integers(0, 30),  # first step
    st.integers(0, 100),  # which text
    st.integers(0, 20),  # how much of its answer is sent with the prompt
    st.integers(1, 12),  # new tokens
    st.lists(st.booleans(), max_size=8),  # drafts, right or wrong
    st.none() | st.integers(0, 40),  # step of the cancellation
)
LIMITS = st.builds(
    lambda short, more, chunk: StepLimits(short, short + more, chunk),
    st.integers(1, 9),
    st.integers(0, 20),
    st.integers(1, 20),
)


def build_request(reference, drawn):
    """A request of a reference text, and the answer that it must have."""
    _, text, sent, new_tokens, drafts, _ = drawn
    prompt, greedy = reference[text % len(reference)]
    ids, rest = [*prompt, *greedy[:sent]], greedy[sent:]
    draft_ids = [token if right else (token + 1) % 300 for token, right in zip(rest, drafts, strict=False)]
    if not draft_ids:
        return GenerateRequest(ids, new_tokens, return_logits=True), rest[:new_tokens]
    agreed = drafts.index(False) if False in drafts else len(drafts)
    answer = rest[: min(agreed + 1, new_tokens)]
    return GenerateRequest(ids, new_tokens, draft_ids, return_logits=True), answer


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    requests=st.lists(REQUESTS, min_size=1, max_size=12),
    rows=st.integers(1, 4),
    limits=LIMITS,
)
def test_any_schedule_gives_the_tokens_of_one_by_one_runs(open_engine, reference, lone_logits, requests, rows, limits):
    built = [build_request(reference, drawn) for drawn in requests]
    jobs = [(drawn[0], request, drawn[5]) for drawn, (request, _) in zip(requests, built, strict=True)]
    outcomes = run(open_engine(rows), jobs, limits)
    for (_, request, cancelled_at), (_, answer), outcome in zip(jobs, built, outcomes, strict=True):
        if cancelled_at is not None and isinstance(outcome, RequestCancelled):
            continue
        assert outcome.new_ids == answer
        np.testing.assert_allclose(outcome.logits, lone_logits(request, answer), atol=LOGITS_TOLERANCE)


@pytest.fixture(scope="module")
def lone_logits(open_engine, generate):
    """lone_logits(request, answer) -> the logits behind which each token of the answer was chosen, in one pass."""
    engine = open_engine(1)
    known = {}

    def compute(request, answer):
        text = (tuple(request.input_ids), tuple(answer))
        if text not in known:
            alone = GenerateRequest(request.input_ids, len(answer), answer[:-1], return_logits=True)
            engine.rows.release(engine.rows.rows[0], keep=False)
            known[text] = generate(engine, alone).logits
        return known[text]

    return compute


def test_one_failing_pass_fails_only_the_request_that_must(open_engine, reference):
    engine = open_engine()
    engine.poison = 315
    good = [(0, GenerateRequest(prompt, 20), None) for prompt, _ in reference[:3]]
    bad = (0, GenerateRequest([*[1] * 12, 315, 4], 20), None)
    *outcomes, failed = run(engine, [*good, bad])
    assert [outcome.new_ids for outcome in outcomes] == [greedy[:20] for _, greedy in reference[:3]]
    assert str(failed) == "poisoned"


NAN_TOKEN = 316


@pytest.fixture(scope="module")
def nan_folder(build_tiny_engine, tmp_path_factory):
    """An engine that gives ``NAN_TOKEN`` an embedding of NaN."""
    folder = shutil.copytree(build_tiny_engine("pair-target"), tmp_path_factory.mktemp("nan") / "engine")
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    (embedding,) = (tensor for tensor in model.graph.initializer if tensor.name == "embedding")
    offset = int(next(entry.value for entry in embedding.external_data if entry.key == "offset"))
    weights = np.memmap(folder / "model.onnx.data", np.float32, "r+", offset, tuple(embedding.dims))
    weights[NAN_TOKEN] = np.nan
    weights.flush()
    return folder


def test_logits_that_are_no_numbers_are_reported_and_touch_nobody_else(nan_folder, reference):
    """The row of the cache is used again by a text that begins like the failed one."""
    engine = WatchedEngine(nan_folder)
    good = [(0, GenerateRequest(prompt, 20), None) for prompt, _ in reference[:3]]
    bad = (3, GenerateRequest([*reference[3][0], *[1] * 40, NAN_TOKEN, 4], 20), None)
    again = (8, GenerateRequest(reference[3][0], 20), None)
    *outcomes, failed, last = run(engine, [*good, bad, again])
    assert [outcome.new_ids for outcome in outcomes] == [greedy[:20] for _, greedy in reference[:3]]
    assert isinstance(failed, LogitsNotFinite)
    assert "NaN" in str(failed) and f"token {len(reference[3][0]) + 41}" in str(failed)
    assert last.new_ids == reference[3][1][:20]


@pytest.mark.parametrize("end", ["cancel", "stop", "abort"])
def test_a_prompt_that_ends_before_its_logits_were_seen_leaves_nothing_that_is_no_number(nan_folder, reference, end):
    engine = WatchedEngine(nan_folder, kv_tokens=MAX_SEQ_LEN)
    batcher = Batcher(engine, StepLimits(short_tokens=4, max_step_tokens=8, chunk_tokens=8))
    is_cancelled, heard = False, []
    job = Job(GenerateRequest([5, NAN_TOKEN, *[1] * 60], 9), heard.append, lambda: is_cancelled)
    batcher.submit(job)
    for _ in range(3):
        batcher.step()
    assert engine.passes == [[8], [8], [8]]
    if end == "cancel":
        is_cancelled = True
        batcher.step()
    elif end == "stop":
        batcher.stop(job)
    else:
        batcher.abort(RequestCancelled())
    assert len(heard) == 1 and batcher.is_idle
    prompt, greedy = reference[1]
    (outcome,) = run(engine, [(0, GenerateRequest(prompt, 10), None)])
    assert outcome.new_ids == greedy[:10]


@pytest.mark.parametrize("failing", ["acquire", "place", "sequence"])
def test_a_request_that_cannot_start_fails_alone_and_frees_its_row(open_engine, reference, monkeypatch, failing):
    engine = open_engine(2)
    (prompt, greedy), bad = reference[0], [7, 8, 9]

    def fail_at(count, called):
        def call(*args):
            counted.append(args)
            if len(counted) == count:
                raise MemoryError("no memory")
            return called(*args)

        counted = []
        return call

    if failing == "acquire":
        monkeypatch.setattr(engine.rows, "acquire", fail_at(2, engine.rows.acquire))
    elif failing == "place":
        monkeypatch.setattr(engine, "place", fail_at(2, engine.place))
    else:
        monkeypatch.setattr(batcher_module, "RunningSequence", fail_at(2, batcher_module.RunningSequence))
    requests = [GenerateRequest(prompt, 10), GenerateRequest(bad, 10), GenerateRequest(prompt, 10)]
    first, failed, last = run(engine, [(0, request, None) for request in requests])
    assert str(failed) == "no memory"
    assert first.new_ids == last.new_ids == greedy[:10]


def test_a_client_that_cannot_be_asked_fails_alone(open_engine, reference):
    batcher, (prompt, greedy) = Batcher(open_engine(2)), reference[0]

    def ask_in_vain():
        raise RuntimeError("the stub is gone")

    told = [[], [], [], []]
    for heard, ask in zip(told, (ask_in_vain, lambda: False, lambda: False, ask_in_vain), strict=True):
        batcher.submit(Job(GenerateRequest(prompt, 5), heard.append, ask))
    while not batcher.is_idle:
        batcher.step()
    assert [str(heard[0]) for heard in (told[0], told[3])] == ["the stub is gone"] * 2
    assert [heard[0].new_ids for heard in told[1:3]] == [greedy[:5]] * 2


def test_a_step_asks_two_clients_in_rotation(open_engine, reference):
    batcher, asked = Batcher(open_engine(3)), []
    for name in "abcdef":
        request = GenerateRequest(reference[0][0], 20)
        batcher.submit(Job(request, lambda _: None, lambda name=name: asked.append(name) or False))
    batcher.step()
    assert sorted(asked) == ["a", "b", "c", "d"]
    asked.clear()
    for _ in range(6):
        batcher.step()
    assert len(asked) == 12
    assert [name for name in asked if name in "abc"] == [*"abc"] * 2
    assert [name for name in asked if name in "def"] == [*"efd"] * 2


@pytest.mark.parametrize("has_draft_logits", [False, True])
def test_drafts_that_are_fed_in_pieces_are_judged_by_their_own_logits(open_engine, reference, has_draft_logits):
    """Each pass overwrites the logits of the one before."""
    prompt, greedy = reference[0]
    sampling = Sampling(temperature=0.01, top_k=4, rules=LogitRules(presence_penalty=1e-6))
    draft_logits = 20 * np.eye(320, dtype=np.float32)[greedy[:6]] if has_draft_logits else None
    request = GenerateRequest(prompt, 7, greedy[:6], sampling=sampling, draft_logits=draft_logits)
    (outcome,) = run(
        open_engine(1), [(0, request, None)], StepLimits(short_tokens=1, max_step_tokens=2, chunk_tokens=2)
    )
    assert outcome.new_ids == greedy[:7]


def test_a_cancelled_request_makes_room_in_the_next_step(open_engine, reference):
    engine = open_engine(1)
    prompt, greedy = reference[1]
    first, second = run(engine, [(0, GenerateRequest(reference[0][0], 100), 5), (0, GenerateRequest(prompt, 10), None)])
    assert isinstance(first, RequestCancelled)
    assert second.new_ids == greedy[:10]
    assert len(engine.passes) == 5 + 10


def test_a_stream_gets_a_token_a_step_while_a_long_prompt_arrives(open_engine, reference):
    engine = open_engine()
    limits = StepLimits(short_tokens=9, max_step_tokens=30, chunk_tokens=16)
    long = [int(t) for t in np.random.default_rng(0).integers(0, 300, 100)]
    prompt, greedy = reference[0]
    stream, _ = run(engine, [(0, GenerateRequest(prompt, 30), None), (5, GenerateRequest(long, 2), None)], limits)
    assert stream.new_ids == greedy[:30]
    beside = [lengths for lengths in engine.passes if len(lengths) == 2]
    assert beside[:6] == [[16, 1]] + [[1, 16]] * 5
    assert all(1 in lengths and sum(lengths) <= 17 for lengths in beside)


def test_decoding_sequences_share_every_pass(open_engine, reference):
    engine = open_engine()
    run(engine, [(0, GenerateRequest(prompt, 10), None) for prompt, _ in reference[:4]])
    assert engine.passes[1:] == [[1, 1, 1, 1]] * 9


def test_sampling_does_not_depend_on_the_company(open_engine, reference, generate):
    requests = [
        GenerateRequest(prompt, 10, sampling=Sampling(1.5, top_p=0.95, seed=seed))
        for seed, (prompt, _) in enumerate(reference[:4])
    ]
    together = run(open_engine(), [(i, request, None) for i, request in enumerate(requests)])
    assert [outcome.new_ids for outcome in together] == [generate(open_engine(), r).new_ids for r in requests]


def test_the_budget_decides_how_many_run_and_how_long_they_may_be(open_engine, build_tiny_engine, generate):
    assert len(open_engine(3).rows.rows) == 3
    small = Engine(build_tiny_engine("pair-target"), kv_tokens=50)
    assert len(small.rows.rows) == 1
    check_request(small, GenerateRequest([1] * 40, 11))
    with pytest.raises(BadRequest, match=r"may need 51 tokens of KV cache.*leaves 50"):
        check_request(small, GenerateRequest([1] * 40, 12))
    assert len(generate(small, GenerateRequest([1] * 40, 11)).new_ids) == 11
    with pytest.raises(ValueError, match="max_tokens_in_paged_kv_cache is 1"):
        Engine(build_tiny_engine("pair-target"), kv_tokens=1)


def test_abort_answers_everybody_and_frees_the_rows(open_engine, reference):
    engine = open_engine(2)
    outcomes = []
    batcher = Batcher(engine)
    for prompt, _ in reference[:4]:
        batcher.submit(Job(GenerateRequest(prompt, 10), outcomes.append))
    batcher.step()
    reason = RequestCancelled()
    batcher.abort(reason)
    assert outcomes == [reason] * 4
    assert batcher.is_idle and not any(row.is_running for row in engine.rows.rows)


def resident_bytes():
    with open("/proc/self/statm") as file:  # noqa: PTH123 - one line of a pseudo file
        return int(file.read().split()[1]) * 4096


def test_the_resident_size_stays_flat_over_many_requests(open_engine, reference):
    engine = open_engine()
    random = np.random.default_rng(5)

    def mixed(count):
        jobs = []
        for i in range(count):
            prompt, greedy = reference[int(random.integers(len(reference)))]
            sent = int(random.integers(0, 20))
            drafts = greedy[sent : sent + int(random.integers(0, 5))]
            request = GenerateRequest([*prompt, *greedy[:sent]], int(random.integers(1, 6)), drafts)
            jobs.append((i // 2, request, i // 2 + 2 if random.random() < 0.1 else None))
        assert None not in run(engine, jobs, default_limits(4, 8))

    mixed(300)
    before = resident_bytes()
    mixed(1700)
    assert resident_bytes() - before < 4 << 20


def follow(batcher, request):
    """Submits a request; its parts and, in the same list, its outcome."""
    heard = []
    job = Job(request, heard.append, deliver_part=heard.append)
    batcher.submit(job)
    return job, heard


def test_a_streaming_request_tells_of_every_token_once(open_engine, reference):
    batcher = Batcher(open_engine())
    prompt, greedy = reference[0]
    asked = {"return_logits": True, "return_log_probs": True, "return_context_logits": True}
    _, parts = follow(batcher, GenerateRequest(prompt, 6, streams=True, **asked))
    _, whole = follow(batcher, GenerateRequest(prompt, 6, **asked))
    while not batcher.is_idle:
        batcher.step()
    (whole,) = whole
    assert [part.new_ids for part in parts] == [[token] for token in greedy[:6]]
    np.testing.assert_allclose(np.concatenate([part.logits for part in parts]), whole.logits, atol=1e-4)
    assert [len(part.log_probs) for part in parts] == [1] * 6
    cumulative = [part.cum_log_prob for part in parts]
    assert cumulative == sorted(cumulative, reverse=True)
    assert cumulative[-1] == pytest.approx(whole.cum_log_prob, abs=1e-4)
    assert [part.context_logits is None for part in parts] == [False] + [True] * 5


def test_a_stream_that_ends_at_its_end_id_has_an_empty_last_part(open_engine, reference):
    batcher = Batcher(open_engine())
    prompt, greedy = reference[0]
    _, parts = follow(batcher, GenerateRequest(prompt, 20, end_id=greedy[3], streams=True, return_logits=True))
    while not batcher.is_idle:
        batcher.step()
    assert [part.new_ids for part in parts] == [[greedy[0]], [greedy[1]], [greedy[2]], []]
    assert parts[-1].logits is None


def test_a_stopped_job_ends_with_what_it_has_and_frees_its_row(open_engine, reference):
    engine = open_engine(1)
    batcher = Batcher(engine)
    prompt, greedy = reference[0]
    running, heard = follow(batcher, GenerateRequest(prompt, 50))
    waiting, unheard = follow(batcher, GenerateRequest(reference[1][0], 50))
    for _ in range(3):
        batcher.step()
    batcher.stop(waiting)
    batcher.stop(running)
    batcher.stop(running)
    assert [outcome.new_ids for outcome in unheard] == [[]]
    assert [outcome.new_ids for outcome in heard] == [greedy[:3]]
    assert batcher.is_idle and not engine.rows.rows[0].is_running


def test_context_logits_do_not_offer_a_cache_that_is_not_there_yet(open_engine, reference):
    """Let in by one step beside a running request: the last must not take over what the second has yet to feed."""
    prompt, greedy = reference[0]
    engine = open_engine(3)
    jobs = [
        (0, GenerateRequest([*prompt, 20, 21], 40), None),
        (5, GenerateRequest([*prompt, 30], 2, return_context_logits=True), None),
        (5, GenerateRequest([*prompt, *greedy[:3]], 5), None),
    ]
    assert run(engine, jobs)[2].new_ids == greedy[3:8]


def test_rounds_that_max_num_tokens_keeps_apart_run_one_after_the_other(build_tiny_engine):
    """Two inputs of 20 tokens fit a bound of 48, three do not; tokens that are decoded later count one each."""
    prompts_a_step = {}
    for bound in (None, 48):
        engine = WatchedEngine(build_tiny_engine("pair-target"), max_num_tokens=bound)
        requests = [GenerateRequest([first, *range(20, 39)], 2) for first in (4, 5, 6)]
        outcomes = run(engine, [(0, request, None) for request in requests])
        prompts_a_step[bound] = max(sum(tokens > 1 for tokens in step) for step in engine.passes)
        assert [len(outcome.new_ids) for outcome in outcomes] == [2, 2, 2]
    assert prompts_a_step == {None: 3, 48: 2}
