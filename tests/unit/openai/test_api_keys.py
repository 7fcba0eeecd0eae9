"""Where keys come from; that they open the application is tested with requests."""

import pytest

from trt_spec.errors import SpecError
from trt_spec.openai.api_error import ApiError
from trt_spec.openai.api_keys import ApiKeys, load_api_keys


def test_keys_come_from_file_and_environment(tmp_path):
    file = tmp_path / "keys"
    file.write_text(" one \n\ntwo\n")
    assert load_api_keys(file, {"TRTSPEC_API_KEYS": "three, four,"}) == ("three", "four", "one", "two")
    assert load_api_keys(None, {}) == ()


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff"])
def test_a_file_without_keys_does_not_open_the_door(tmp_path, content):
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(SpecError, match="API keys"):
        load_api_keys(file, {})


def test_keys_are_never_shown():
    keys = ApiKeys(["secret"])
    keys.check(b"bearer secret")
    with pytest.raises(ApiError) as caught:
        keys.check(b"Bearer secrets")
    assert "secret" not in f"{caught.value} {caught.value.body()} {vars(keys)}"
