"""Templates rendered as transformers renders them, and what happens to those that cannot be."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from trt_spec.errors import SpecError
from trt_spec.openai.api_error import ApiError
from trt_spec.openai.chat_template import ChatTemplates, load_templates

FOLDER = Path(__file__).parents[2] / "fixtures" / "chat_templates"
CASES = json.loads((FOLDER / "cases.json").read_text(encoding="utf-8"))
REFERENCE = json.loads((FOLDER / "references.json").read_text(encoding="utf-8"))
RENDERED = [(template, case) for template, cases in REFERENCE["rendered"].items() for case in cases]


def render(source, messages=({"role": "user", "content": "hi"},), **arguments):
    return ChatTemplates({"default": source}, {"bos_token": "<s>", "eos_token": "</s>"}).render(messages, **arguments)


@pytest.mark.parametrize(("template", "case"), RENDERED)
def test_prompts_are_those_of_transformers(template, case):
    source = (FOLDER / f"{template}.jinja").read_text(encoding="utf-8")
    arguments = dict(CASES[case])
    messages = [{key: value for key, value in m.items() if value is not None} for m in arguments.pop("messages")]
    templates = ChatTemplates({"default": source}, REFERENCE["tokens"])
    found = templates.render(messages, extra=REFERENCE["variables"], **arguments)
    assert found == REFERENCE["rendered"][template][case]


def test_every_template_has_references():
    assert set(REFERENCE["rendered"]) == {path.stem for path in FOLDER.glob("*.jinja")}
    assert min(len(cases) for cases in REFERENCE["rendered"].values()) >= 4


def test_the_date_is_todays():
    assert render("{{ strftime_now('%Y') }}") == datetime.now().strftime("%Y")


def test_what_a_template_refuses_is_told():
    with pytest.raises(ApiError, match="refuses these messages: Roles must alternate") as caught:
        render("{{ raise_exception('Roles must alternate') }}")
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content.nothing.at_all }}",
        "{{ 1 / 0 }}",
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ range(10 ** 9) | list | length }}",
        "{{ dict.mro() }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_a_template_that_fails_or_reaches_out_is_a_refusal(source):
    with pytest.raises(ApiError, match="cannot render these messages") as caught:
        render(source)
    assert caught.value.status == 400


def test_messages_are_no_templates():
    assert render("{{ messages[0].content }}", [{"role": "user", "content": "{{ 7 * 7 }}"}]) == "{{ 7 * 7 }}"


@pytest.fixture
def model_folder(tmp_path):
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "config"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_the_template_comes_from_the_first_file_that_counts(model_folder):
    hi = [{"role": "user", "content": "hi"}]
    assert load_templates(model_folder).render(hi) == "config"
    (model_folder / "chat_template.json").write_text(json.dumps({"chat_template": "json"}))
    assert load_templates(model_folder).render(hi) == "json"
    (model_folder / "chat_template.jinja").write_text("file {{ bos_token }}{{ eos_token }}")
    assert load_templates(model_folder).render(hi) == "file <s></s>"
    override = model_folder / "mine.jinja"
    override.write_text("mine")
    assert load_templates(model_folder, override).render(hi) == "mine"


def test_several_templates_are_chosen_by_name_and_by_need(model_folder):
    several = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    (model_folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    extra = model_folder / "additional_chat_templates"
    extra.mkdir()
    (extra / "rag.jinja").write_text("documents")
    templates, hi = load_templates(model_folder), [{"role": "user", "content": "hi"}]
    assert templates.render(hi) == "plain"
    assert templates.render(hi, tools=[{"type": "function"}]) == "tools"
    assert templates.render(hi, name="rag") == "documents"
    with pytest.raises(ApiError, match="no chat template 'poem', expected one of default, rag, tool_use"):
        templates.render(hi, name="poem")


def test_a_model_without_a_template_is_refused_with_the_remedy():
    with pytest.raises(ApiError, match=r"/v1/completions.*--chat-template FILE"):
        ChatTemplates({}, {}).render([{"role": "user", "content": "hi"}])


def test_a_file_that_is_no_template_ends_the_start(model_folder):
    (model_folder / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(SpecError, match="no Jinja template"):
        load_templates(model_folder)


def test_a_client_cannot_replace_the_messages():
    with pytest.raises(ApiError, match="chat_template_kwargs sets messages"):
        render("{{ messages }}", extra={"messages": []})
