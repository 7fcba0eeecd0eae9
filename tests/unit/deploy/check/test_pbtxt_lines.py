from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.deploy.check.pbtxt_lines import parse_lines
from trt_spec.deploy.pbtxt import ModelConfig, Tensor, render_pbtxt

TEXT = """\
name: "x"  # no ${placeholder}
max_batch_size: ${triton_max_batch_size}
input [
  {
    name: "a"
    data_type: ${logits_datatype}
    dims: [ -1, 3 ]
    reshape: { shape: [ ] }
  },
  { name: 'b' dims: [1] }
]
parameters: {
  key: "gpt_model_path"
  value: {
    string_value: "${engine_dir}/x"
  }
}
parameters < key: "z" value < string_value: "1" > >
ensemble_scheduling { step [ { model_name: "pre"
  input_map { key: "Q"
    value: "text" } }, { model_name: "post" } ] }
model_transaction_policy { decoupled: true }
"""


def test_lines_of_fields_entries_and_values():
    lines = parse_lines(TEXT)
    expected = {
        ("name",): 1,
        ("max_batch_size",): 2,
        ("input",): 3,
        ("input", "a"): 5,
        ("input", "a", "data_type"): 6,
        ("input", "a", "reshape"): 8,
        ("input", "b"): 10,
        ("parameters", "gpt_model_path"): 15,
        ("parameters", "z"): 18,
        ("ensemble_scheduling", "step", "pre"): 19,
        ("ensemble_scheduling", "step", "pre", "input_map", "Q"): 21,
        ("ensemble_scheduling", "step", "post"): 21,
        ("model_transaction_policy", "decoupled"): 22,
    }
    assert {words: lines.line_of(*words) for words in expected} == expected
    assert lines.line_of("output") is None
    assert lines.line_of("input", "c") is None
    assert lines.line_of() is None


def test_placeholders_with_their_fields():
    found = [(hole.name, hole.line, hole.path[:2], hole.in_string) for hole in parse_lines(TEXT).placeholders]
    assert found == [
        ("triton_max_batch_size", 2, ("max_batch_size",), False),
        ("logits_datatype", 6, ("input", "a"), False),
        ("engine_dir", 15, ("parameters", "gpt_model_path"), True),
    ]


NAMES = st.text(st.characters(codec="ascii"), min_size=1, max_size=12)


def escape(text):
    return text.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"')


@given(st.lists(NAMES, unique=True, max_size=6), st.lists(NAMES, unique=True, max_size=6))
@settings(max_examples=50)
def test_every_name_of_a_rendered_file_is_found_on_its_line(tensors, keys):
    config = ModelConfig(
        name="m",
        backend="python",
        max_batch_size=1,
        inputs=tuple(Tensor(name, "INT32", (1,)) for name in tensors if name.isprintable()),
        outputs=(),
        parameters={key: f"value of {key}" for key in keys if key.isprintable()},
    )
    text = render_pbtxt(config)
    rows, lines = text.split("\n"), parse_lines(text)
    for tensor in config.inputs:
        words = ("input", tensor.name)
        if tensor.name not in ("name", "data_type", "dims"):  # a field's name wins over an element's
            assert f'name: "{escape(tensor.name)}"' in rows[lines.line_of(*words) - 1]
    for key, value in config.parameters.items():
        if key not in ("key", "value"):
            assert escape(value) in rows[lines.line_of("parameters", key) - 1]


@given(st.text(alphabet="ab{}[]<>:,;\"'\\$#\n \t0-é\0", max_size=200))
@settings(max_examples=300)
def test_any_text_is_read(text):
    lines = parse_lines(text)
    count = text.count("\n") + 1
    stack = [lines.root]
    while stack:
        node = stack.pop()
        assert 0 <= node.line <= count
        stack += node.children
    assert all(1 <= hole.line <= count for hole in lines.placeholders)


def test_deep_nesting_and_long_texts_take_no_recursion_and_no_square_time():
    for text in ("a {" * 100_000, "[" * 100_000, '"' + "${" * 200_000, "${" * 200_000, "x " * 100_000):
        parse_lines(text)
