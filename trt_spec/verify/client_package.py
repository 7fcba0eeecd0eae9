"""Packages of the ``client`` extra, which whoever only builds and deploys does without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trt_spec.errors import EnvironmentMissing


@contextmanager
def importing(package: str) -> Iterator[None]:
    """Tells of a package that cannot be imported inside as EnvironmentMissing."""
    try:
        yield
    except ImportError as error:
        raise EnvironmentMissing(
            f"The Python package {package} is not installed.", remedy="Install it with: pip install 'trtspec[client]'."
        ) from error
