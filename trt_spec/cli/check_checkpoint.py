"""What ``trtspec convert`` checks of checkpoints, as a report of ``trtspec check``: deploy does not know build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trt_spec.build.checkpoint.check import check_checkpoint
from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.path_kind import CONFIG_FILE
from trt_spec.deploy.check.run import CheckReport
from trt_spec.errors import VerifyFailed


def inspect_checkpoint(folder: Path, progress: Callable[[str, float | None], None]) -> CheckReport:
    """Read a TensorRT-LLM checkpoint; its first fault is the only finding."""
    try:
        checked = check_checkpoint(folder, progress)
    except VerifyFailed as error:
        why = "an engine built from it would be wrong, or not be built"
        finding = CheckFinding("checkpoint", "error", CONFIG_FILE, None, error.found, why, error.remedy)
        return CheckReport(folder, "checkpoint", (finding,))
    about = {key: value for key, value in vars(checked).items() if key != "folder"}
    about["contents"] = "every byte as written" if checked.has_digests else "not compared, there is no manifest"
    return CheckReport(folder, "checkpoint", (), about=about)
