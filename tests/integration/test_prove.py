"""The conformance table on the local engine behind the real Triton: every rule that it can show holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from click.testing import CliRunner

from trt_spec.cli.main import main
from trt_spec.deploy.deployment import Deployment
from trt_spec.deploy.host.server import RunningServer
from trt_spec.deploy.repository import write_repository
from trt_spec.verify.conformance.rows import ROWS

PROBED = {row.id for row in ROWS if row.probe is not None}


def prove(server: RunningServer, *arguments: str) -> tuple[int, dict[str, str], dict[str, object]]:
    """(exit code, verdict by row, record) of ``trtspec prove --json``."""
    result = CliRunner().invoke(main, ["prove", server.grpc_url, "--json", *arguments])
    record = json.loads(result.stdout)
    verdicts = {proof["id"]: proof["verdict"] for proof in record["proofs"] if proof["model"] == "tensorrt_llm"}
    return result.exit_code, verdicts, record


@pytest.mark.parametrize("version", ["0.18.2", "1.2.1"])
def test_the_local_engine_keeps_every_rule_it_can_show(
    served_in_dialect: Callable[[str], RunningServer], tmp_path: Path, version: str
) -> None:
    code, verdicts, record = prove(served_in_dialect(version), "--report", str(tmp_path))
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
    tmp_path: Path,
    build_tiny_engine: Callable[..., Path],
    tiny_deployment: Callable[..., Deployment],
    serving: Callable[[Path], AbstractContextManager[RunningServer]],
) -> None:
    deployment = tiny_deployment(target=build_tiny_engine("pair-target", max_num_tokens=40))
    with serving(write_repository(deployment, tmp_path / "repository")) as server:
        code, verdicts, record = prove(server)
    assert (code, verdicts["whole-prefix"]) == (0, "held"), record
