"""The command that a user is told to go on with."""

import shlex
from pathlib import Path

from trt_spec.cli.next_command import next_command


def test_the_workspace_that_was_named_goes_along():
    told = next_command("deploy", Path("my specs/a.yaml"), Path("/data/w s"))
    assert shlex.split(told) == ["trtspec", "deploy", "my specs/a.yaml", "-o", "/data/w s"]


def test_the_default_workspace_needs_no_words():
    assert next_command("serve", Path("a.yaml"), None) == "trtspec serve a.yaml"
