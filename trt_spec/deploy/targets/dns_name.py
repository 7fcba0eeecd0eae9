"""Names of specs as names that Kubernetes and Compose accept."""

from __future__ import annotations

import hashlib
import re

# Controllers append to a workload's name (ordinals, revision hashes) and write the result into labels of 63 characters.
MAX_NAME = 40
DIGEST_LENGTH = 6
_PLAIN_NAME = re.compile(rf"[a-z]([-a-z0-9]{{0,{MAX_NAME - 2}}}[a-z0-9])?")


def dns_name(name: str) -> str:
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
