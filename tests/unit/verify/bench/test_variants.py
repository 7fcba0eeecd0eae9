"""Specs of other drafts."""

import pytest

from trt_spec.errors import SpecError
from trt_spec.spec.load import load_spec
from trt_spec.verify.bench.variants import folder_of, vary_spec


@pytest.fixture
def spec(write_spec):
    return load_spec(write_spec())


@pytest.fixture
def copy(spec):
    return spec.model_copy(update={"draft": spec.draft.model_copy(update={"model": "self", "quantization": "int8"})})


def test_another_quantisation_changes_the_draft_alone(spec):
    other = vary_spec(spec, "int4")
    assert other.draft.quantization == "int4"
    assert other.model_copy(update={"draft": spec.draft}) == spec


def test_the_first_layers(copy):
    assert vary_spec(copy, "layers:2").draft.layers == (0, 1)


@pytest.mark.parametrize(
    ("system", "message"), [("int3", "int3"), ("layers:x", "layers:x"), ("accept:fast_logits", "accept")]
)
def test_what_no_spec_allows_is_refused(spec, system, message):
    with pytest.raises(SpecError, match=message):
        vary_spec(spec, system)


def test_layers_of_a_foreign_draft_are_refused(spec):
    with pytest.raises(SpecError, match="layers"):
        vary_spec(spec, "layers:2")


def test_a_spec_without_a_draft_has_no_other(spec):
    alone = spec.model_copy(update={"draft": None})
    with pytest.raises(SpecError, match="has no draft"):
        vary_spec(alone, "int4")


def test_another_spec_file_needs_the_same_target(spec, write_spec, tmp_path):
    same = tmp_path / "same.yaml"
    same.write_text(write_spec().read_text().replace("max_draft_len: 4", "max_draft_len: 2"))
    assert vary_spec(spec, str(same)).speculation.max_draft_len == 2
    same.write_text(same.read_text().replace("/target}", "/draft}"))
    with pytest.raises(SpecError, match="another target"):
        vary_spec(spec, str(same))


def test_folders_have_plain_names():
    assert folder_of("../a b/c.yaml") == "a-b-c"
    assert folder_of("layers:25") == "layers-25"
