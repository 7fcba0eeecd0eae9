"""The target's tokenizer folder: ids, end ids, chat template."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trt_spec.errors import SpecError
from trt_spec.verify.tokenizer import load_tokenizer

CHAT = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}\n{% endfor %}"


def test_ids_and_template(tmp_path: Path, make_tokenizer) -> None:
    template = CHAT + "{% if add_generation_prompt %}[assistant]{% endif %}"
    tokenizer = load_tokenizer(make_tokenizer(tmp_path, chat_template=template))
    rendered = tokenizer.render_prompt("안녕 🙂")
    assert rendered == "[user] 안녕 🙂<end>\n[assistant]"
    assert tokenizer.encode("a<end>") == (tokenizer.encode("a")[0], 2)
    assert tokenizer.end_ids == (2,)


def test_base_model_gets_raw_text(tmp_path: Path, make_tokenizer) -> None:
    tokenizer = load_tokenizer(make_tokenizer(tmp_path))
    assert tokenizer.chat_template is None
    assert tokenizer.render_prompt("as it is") == "as it is"


def test_generation_config_decides_the_end_ids(tmp_path: Path, make_tokenizer) -> None:
    make_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"eos_token_id": 9}', encoding="utf-8")
    assert load_tokenizer(tmp_path).end_ids == (9,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 7]}', encoding="utf-8")
    assert load_tokenizer(tmp_path).end_ids == (2, 7)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": null}', encoding="utf-8")
    assert load_tokenizer(tmp_path).end_ids == (9,)


def test_bos_of_the_template_is_not_doubled(tmp_path: Path, make_tokenizer) -> None:
    template = "{{ bos_token }}[{{ messages[0].content }}]"
    folder = make_tokenizer(tmp_path, chat_template=template)
    assert load_tokenizer(folder).render_prompt("x") == "<s>[x]"

    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode(tokenizer.render_prompt("x"))[:2] == (1, tokenizer.encode("[")[1])


def test_named_templates_and_template_file(tmp_path: Path, make_tokenizer) -> None:
    named = [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes {{ messages[0].content }}"}]
    make_tokenizer(tmp_path, chat_template=named)
    assert load_tokenizer(tmp_path).render_prompt("x") == "yes x"
    (tmp_path / "chat_template.jinja").write_text("file {{ messages[0].content }}", encoding="utf-8")
    assert load_tokenizer(tmp_path).render_prompt("x") == "file x"


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('no system role') }}", "{% if %}", "{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}"],
)
def test_bad_or_hostile_template_is_refused(tmp_path: Path, make_tokenizer, template: str) -> None:
    tokenizer = load_tokenizer(make_tokenizer(tmp_path, chat_template=template))
    with pytest.raises(SpecError, match="chat template"):
        tokenizer.render_prompt("x")


def test_folder_without_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"holds no tokenizer\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_broken_files_are_named(tmp_path: Path, make_tokenizer, name: str) -> None:
    make_tokenizer(tmp_path)
    (tmp_path / name).write_text("{", encoding="utf-8")
    with pytest.raises(SpecError, match=name):
        load_tokenizer(tmp_path)
