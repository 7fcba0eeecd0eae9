"""Versions that decide the bytes of an onnx engine, found without loading the packages."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from trt_spec.errors import EnvironmentMissing

STEP_VERSION = "3"
"""Raised whenever the same parameters begin to give other bytes; part of every fingerprint."""

PACKAGES = ("numpy", "onnx")


def resolve_tools() -> dict[str, str]:
    """Version by package; EnvironmentMissing names the extra if one is not installed."""
    try:
        return {"step": STEP_VERSION, **{package: version(package) for package in PACKAGES}}
    except PackageNotFoundError as error:
        raise EnvironmentMissing(
            f"The package {error.name} is not installed, and building onnx engines needs it.",
            remedy="Run `pip install 'trtspec[local]'`.",
        ) from None
