import os

from trt_spec.util.text import encodable, printable


def test_nothing_steers_a_terminal_or_breaks_a_line():
    assert printable("a b é \x1b[31m\n\u2028\udcff") == "a b é \\x1b[31m\\n\\u2028\\udcff"


def test_foreign_bytes_of_names_can_be_encoded():
    text = encodable(os.fsdecode(b"a\xff\n") + "é")
    assert text == "a\\udcff\né"
    assert text.encode("utf-8")
