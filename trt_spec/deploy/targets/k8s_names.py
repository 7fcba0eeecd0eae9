"""Names and labels of the Kubernetes objects of one deployment."""

from __future__ import annotations

import hashlib
import re

from trt_spec.deploy.targets.target import GpuTarget

# Controllers append to a workload's name (ordinals, revision hashes) and write the result into labels of 63 characters.
MAX_NAME = 40
DIGEST_LENGTH = 6
_PLAIN_NAME = re.compile(rf"[a-z]([-a-z0-9]{{0,{MAX_NAME - 2}}}[a-z0-9])?")

Labels = dict[str, str]


def object_name(name: str) -> str:
    """The name of a spec as a DNS label of at most 40 characters that begins with a letter (RFC 1035).

    A name that is one already is kept. Any other loses its capitals, every run of other characters becomes one hyphen,
    and six digits of the SHA-256 of the whole name follow, so that two names never become one.
    """
    if _PLAIN_NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:DIGEST_LENGTH]
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not plain[:1].isalpha():
        plain = f"t-{plain}".rstrip("-")
    return f"{plain[: MAX_NAME - DIGEST_LENGTH - 1].rstrip('-')}-{digest}"


def service_name(name: str) -> str:
    """The service that clients call; the workload's own name belongs to the headless service of a group."""
    return f"{name}-triton"


def claim_name(name: str) -> str:
    """The PersistentVolumeClaim that holds the workspace; its maker is the user."""
    return f"{name}-models"


def selector_labels(name: str, component: str | None = None) -> Labels:
    """What selects the pods of a deployment, or those of them that answer requests (component ``server``)."""
    labels = {"app.kubernetes.io/name": "trtspec", "app.kubernetes.io/instance": name}
    return labels if component is None else {**labels, "app.kubernetes.io/component": component}


def object_labels(target: GpuTarget) -> Labels:
    """The labels of every object; selectors leave the version out, which an update changes."""
    return {
        **selector_labels(object_name(target.spec.name)),
        "app.kubernetes.io/version": target.spec.tensorrt_llm,
        "app.kubernetes.io/managed-by": "trtspec",
    }
