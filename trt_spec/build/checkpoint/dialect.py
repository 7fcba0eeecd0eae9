"""Which recorded checkpoint format a TensorRT-LLM version gets."""

from __future__ import annotations

from typing import NamedTuple

from trt_spec.errors import SpecError
from trt_spec.plan.toolchain.profile import CheckpointDialect, load_profile, version_key
from trt_spec.spec.rules import ENGINE_REMOVED_IN

OLDEST = "0.17.0"
# The two trees whose converters' output is recorded.
RECORDED: dict[str, CheckpointDialect] = {"0.17.0": "0.17", "1.3.0rc3": "1.3.0rc3"}
_LATER_FROM = "1.2.0"


class DialectChoice(NamedTuple):
    """``basis`` says how sure the choice is."""

    dialect: CheckpointDialect
    basis: str


def resolve_dialect(version: str) -> DialectChoice:
    """The format for ``version``. Raises SpecError for a version that is none or has no engines to convert for."""
    if version in RECORDED:
        return DialectChoice(RECORDED[version], "recorded from the converter of this version")
    try:
        key = version_key(version)
    except ValueError:
        key = None
    if key is None or not version_key(OLDEST) <= key < version_key(ENGINE_REMOVED_IN):
        load_profile(version)  # its refusal says what is wrong with the version
        raise SpecError(f"TensorRT-LLM {version} has no recorded checkpoint format.", remedy=f"Use {OLDEST} or newer.")
    if key >= version_key(_LATER_FROM):
        return DialectChoice("1.3.0rc3", f"follows 1.3.0rc3, the recorded version nearest to {version}")
    # Newer versions fill in what an older checkpoint lacks, while an older one stops at mapping keys it does not know.
    return DialectChoice("0.17", f"follows 0.17.0, the recorded version before {version}, whose format newer ones read")
