"""The conformance table on the local engine behind the real Triton: every rule that it can show holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import main
from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.host.launch import LaunchOptions, running_triton
from trt_spec.deploy.host.ports import find_free_ports
from trt_spec.deploy.host.server import RunningServer
from trt_spec.deploy.repository import write_repository
from trt_spec.spec.model import Serve
from trt_spec.verify.conformance.rows import ROWS

PROBED = {row.id for row in ROWS if row.probe is not None}


@pytest.fixture(scope="module")
def serve_tiny(
    tmp_path_factory: pytest.TempPathFactory, build_tiny_engine: Callable[..., Path]
) -> Callable[..., Iterator[RunningServer]]:
    """serve(version, **params of the target engine) -> a running server of the tiny pair."""

    def serve(version: str, **params: int) -> Iterator[RunningServer]:
        target, draft = (
            build_tiny_engine("pair-target", speculative_decoding_mode=2, **params),
            build_tiny_engine("pair-draft", max_draft_len=0, speculative_decoding_mode=1),
        )
        deployment = Deployment(
            name="tiny pair",
            id="0123",
            tensorrt_llm=version,
            target=EngineDeployment(str(target), target, kv_cache_tokens=512),
            draft=EngineDeployment(str(draft), draft, kv_cache_tokens=512),
            tokenizer_dir=target,
            max_draft_len=8,
            max_input_len=64,
            max_output_len=32,
            max_seq_len=128,
            max_batch_size=4,
            vocab_size=320,
            draft_vocab_size=320,
        )
        root = tmp_path_factory.mktemp("prove")
        repository = write_repository(deployment, root / "repository")
        options = LaunchOptions(repository=repository, workspace=root, serve=Serve(**find_free_ports()), timeout_s=120)
        with running_triton(options) as server:
            yield server

    return serve


def prove(server: RunningServer, *arguments: str) -> tuple[int, dict[str, str], dict[str, object]]:
    """(exit code, verdict by row, record) of ``trtspec prove --json``."""
    result = CliRunner().invoke(main, ["prove", server.grpc_url, "--json", *arguments])
    record = json.loads(result.stdout)
    verdicts = {proof["id"]: proof["verdict"] for proof in record["proofs"] if proof["model"] == "tensorrt_llm"}
    return result.exit_code, verdicts, record


@pytest.mark.parametrize("version", ["0.18.2", "1.2.1"])
def test_the_local_engine_keeps_every_rule_it_can_show(
    serve_tiny: Callable[..., Iterator[RunningServer]], tmp_path: Path, version: str
) -> None:
    for server in serve_tiny(version):
        code, verdicts, record = prove(server, "--report", str(tmp_path))
        assert [proof for proof in record["proofs"] if proof["verdict"] == "differs"] == []
        assert code == 0
        assert verdicts.keys() == PROBED
        # Engines of trtspec have no max_num_tokens unless they are told to.
        unshown = {row for row, verdict in verdicts.items() if verdict != "held"}
        assert unshown == {"whole-prefix"}, record
        assert record["engines"]["tensorrt_llm"]["stands_for"] == "trtspec's local engine"
        held = {proof["id"] for proof in record["proofs"] if proof["model"] == "tensorrt_llm_draft"}
        assert held == {row.id for row in ROWS if row.on_draft}
        assert record["verified"]["rows"] == {"tensorrt_llm": [], "tensorrt_llm_draft": []}
        assert json.loads((tmp_path / "conformance.json").read_text())["proofs"] == record["proofs"]


def test_the_whole_prefix_counts_where_the_local_engine_has_max_num_tokens(
    serve_tiny: Callable[..., Iterator[RunningServer]],
) -> None:
    for server in serve_tiny("1.2.1", max_num_tokens=40):
        code, verdicts, record = prove(server)
        assert (code, verdicts["whole-prefix"]) == (0, "held"), record
