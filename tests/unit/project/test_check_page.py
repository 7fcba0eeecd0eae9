"""docs/reference/check.md against the source: codes with severity and fix, options, versions, and what it shows.

The codes are read from the calls that make findings. Most of them go through functions of one module that take the code
as an argument; such a call is followed until it reaches what makes the finding.
"""

import ast
import inspect
import json
import re
import shlex
import shutil
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from trt_spec.cli.main import main
from trt_spec.deploy.check.finding import SEVERITIES, CheckFinding
from trt_spec.deploy.check.rules.report import found, found_parameter
from trt_spec.deploy.deployment import Deployment, EngineDeployment
from trt_spec.deploy.dialect import RECORDED_VERSIONS
from trt_spec.deploy.repository import write_repository
from trt_spec.plan import llmapi_dialect

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "check.md").read_text(encoding="utf-8")
TOKENIZER = ROOT / "tests" / "fixtures" / "tiny" / "tokenizer"
MAKERS = {maker.__name__: list(inspect.signature(maker).parameters) for maker in (CheckFinding, found, found_parameter)}
# Codes that are data: expressions of the source, and what they may stand for.
COMPUTED = {"trouble.code": {row["code"] for row in json.loads(llmapi_dialect.DATA_PATH.read_text())["notices"]}}
NOTHING = ast.Constant(None)


class UnreadableError(Exception):
    """A call whose code cannot be told from the source."""


def read_codes(sources):
    """code -> (severities, whether any finding of it may carry a fix); a severity that is computed reads as None."""
    codes = defaultdict(lambda: [set(), False])
    for name, text in sources.items():
        for code, severity, has_fix in _read_module(name, ast.parse(text)):
            codes[code][0].add(severity)
            codes[code][1] |= has_fix
    return {code: (severities, has_fix) for code, (severities, has_fix) in codes.items()}


def _read_module(name, tree):
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    forwarders = {function.name: function for function in functions if "code" in _parameters(function)}
    for function in functions:
        for call in _calls(function, forwarders):
            given = _bind(call, forwarders, {})
            if function.name in forwarders and isinstance(given["code"], ast.Name):
                continue  # followed from where the function is called
            yield from _follow(name, call, forwarders, {})


def _follow(name, call, forwarders, outer):
    given = _bind(call, forwarders, outer)
    target = _name(call)
    if target in forwarders:
        for inner in _calls(forwarders[target], forwarders):
            yield from _follow(name, inner, forwarders, given)
        return
    if _parts(given["code"]) == _parts(given["severity"]) != "":
        return  # made from another finding, whose code was read where that one is made
    fix = given.get("fix", given.get("becomes", NOTHING))
    has_fix = not (isinstance(fix, ast.Constant) and fix.value is None)
    for code_part, severity_part in _branches(given["code"], given["severity"]):
        for code in _values(code_part):
            if code is None:
                raise UnreadableError(f"{name}:{call.lineno}: {ast.unparse(code_part)}")
            for severity in _values(severity_part):
                yield code, severity, has_fix


def _calls(function, forwarders):
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and (_name(node) in forwarders or _name(node) in MAKERS)
    ]


def _name(call):
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _parameters(function):
    return [argument.arg for argument in function.args.args if argument.arg != "self"]


def _bind(call, forwarders, outer):
    """Expressions by parameter; what is a parameter of the function around it is looked up in ``outer``."""
    target = _name(call)
    given = {}
    if target in forwarders:
        arguments, names = forwarders[target].args, _parameters(forwarders[target])
        given = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
    else:
        names = MAKERS[target]
    written = dict(zip(names, call.args, strict=False)) | {word.arg: word.value for word in call.keywords}
    return given | {
        key: outer.get(value.id, value) if isinstance(value, ast.Name) else value for key, value in written.items()
    }


def _parts(expression):
    """What `x.code` and `x.severity` are parts of, nothing for other expressions."""
    return ast.dump(expression.value) if isinstance(expression, ast.Attribute) else ""


def _branches(code, severity):
    """What belongs together where one condition decides on both."""
    if (
        isinstance(code, ast.IfExp)
        and isinstance(severity, ast.IfExp)
        and ast.dump(code.test) == ast.dump(severity.test)
    ):
        return [(code.body, severity.body), (code.orelse, severity.orelse)]
    return [(code, severity)]


def _values(expression):
    if isinstance(expression, ast.Constant):
        return {expression.value}
    if isinstance(expression, ast.IfExp):
        return _values(expression.body) | _values(expression.orelse)
    return COMPUTED.get(ast.unparse(expression), {None})


@cache
def source_codes():
    files = {path: path.read_text(encoding="utf-8") for path in (ROOT / "trt_spec").rglob("*.py")}
    return read_codes({str(path): text for path, text in files.items() if "CheckFinding" in text})


def page_rows():
    """Code, severities, whether it says fix, and cases, of every row of the page's tables of codes."""
    rows = []
    for line in PAGE.splitlines():
        if match := re.match(r"\| `([a-z0-9-]+)` \| ([a-z, ]+) \| .* \| (\S[^|]*)?\| ([^|]*)\|$", line):
            rows.append((match[1], set(match[2].split(", ")), bool(match[3]), match[4].split()))
    return rows


def test_every_code_of_the_source_is_on_the_page_once():
    listed = Counter(code for code, *_ in page_rows())
    assert len(listed) > 80
    assert {code for code, count in listed.items() if count > 1} == set()
    assert set(source_codes()) - set(listed) == set(), "not on the page"
    assert set(listed) - set(source_codes()) == set(), "not in the source"


def test_severities_and_fixes_are_those_of_the_source():
    computed = {code for code, (severities, _) in source_codes().items() if None in severities}
    assert computed == {"tensor-missing"}  # both of its severities are in a table of the source
    for code, severities, says_fix, _ in page_rows():
        expected, has_fix = source_codes()[code]
        assert code in computed or severities == expected, code
        assert severities <= set(SEVERITIES), code
        assert says_fix == has_fix, code


def test_codes_are_read_through_functions_and_conditions():
    text = """
def rule(view):
    yield CheckFinding("a", "error", "f", 1, "w", "w", "r")
    yield found(model, (), "b" if x else "c", "note" if x else "error", "w", "w", "r", becomes="1")
    yield CheckFinding("f", "note" if x else "error", "f", 1, "w", "w", "r", None)
    yield found(model, (), other.code, other.severity, "w", "w", "r")
    yield _deep("d")
    yield self.put("e", fix=plan())
def _deep(code): return _report(code, "warning")
def _report(code, severity, fix=None): return CheckFinding(code, severity, "f", 1, "w", "w", "r", fix)
class X:
    def put(self, code, severity="note", fix=None): return CheckFinding(code, severity, "f", 1, "w", "w", "r", fix)
"""
    assert read_codes({"x.py": text}) == {
        "a": ({"error"}, False),
        "b": ({"note"}, True),
        "c": ({"error"}, True),
        "f": ({"note", "error"}, False),
        "d": ({"warning"}, False),
        "e": ({"note"}, True),
    }
    with pytest.raises(UnreadableError, match=r"x\.py:2: name\(\)"):
        read_codes({"x.py": "def rule(view):\n  CheckFinding(name(), 'error', 'f', 1, 'w', 'w', 'r')"})


def test_cases_on_the_page_have_a_test_of_check():
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "unit" / "deploy" / "check").rglob("test_*.py"))
    tested = {name.upper() for name in re.findall(r"def test_([bt]\d{3})_", tests)}
    assert {case for *_, cases in page_rows() for case in cases} == tested


def test_options_and_versions_are_all_there():
    command = main.get_command(click.Context(main), "check")
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert set(re.findall(r"^\| `(--[a-z-]+)`", PAGE, re.MULTILINE)) == options
    recorded = re.search(r"Those of ([^;]*?)\s+are\s+recorded", PAGE)[1]
    assert tuple(re.findall(r"\d+\.\d+\.\d+(?:rc\d+)?", recorded)) == RECORDED_VERSIONS
    assert all(f"**{severity}**" in PAGE for severity in SEVERITIES)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """The repository of the page, in the current folder: a pair without trtspec.json, and three faults in it."""
    config = {
        "version": "1.2.1",
        "pretrained_config": {"mapping": {"tp_size": 1, "pp_size": 1}},
        "build_config": {
            "speculative_decoding_mode": 2,
            "max_draft_len": 4,
            "plugin_config": {"use_paged_context_fmha": True, "remove_input_padding": True},
        },
    }
    engines = {}
    for role in ("target", "draft"):
        folder = tmp_path / "engines" / role
        shutil.copytree(TOKENIZER, folder)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "rank0.engine").write_bytes(b"plan")
        engines[role] = EngineDeployment(str(folder), folder, kv_cache_tokens=1280)
    deployment = Deployment(
        name="pair",
        id="0",
        tensorrt_llm="1.2.1",
        target=engines["target"],
        draft=engines["draft"],
        tokenizer_dir=TOKENIZER,
        max_draft_len=4,
        max_input_len=100,
        max_output_len=50,
        max_seq_len=154,
        max_batch_size=8,
        vocab_size=320,
        draft_vocab_size=320,
    )
    root = write_repository(deployment, tmp_path / "repository")
    (root / "trtspec.json").unlink()
    queue = "dynamic_batching {\n  default_queue_policy {\n    max_queue_size: 256\n  }\n}\n"
    reuse = 'key: "enable_kv_cache_reuse"\n  value {\n    string_value: '
    for model, old, new in (
        ("tensorrt_llm", f'{reuse}"true"', f'{reuse}"false"'),
        ("tensorrt_llm_bls", 'string_value: "tensorrt_llm_draft"', 'string_value: "llama_draft"'),
        ("tensorrt_llm_draft", "\ninstance_group {", f"\n{queue}instance_group {{"),
    ):
        file = root / model / "config.pbtxt"
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))
    monkeypatch.chdir(tmp_path)
    return root


def run(line):
    """The result of a command as the page writes it."""
    words = shlex.split(line)
    assert words[0] == "trtspec"
    return CliRunner().invoke(main, words[1:])


def test_the_output_on_the_page_is_real(repository):
    command, _, shown = PAGE.partition("```\n$ ")[2].partition("\n```")[0].partition("\n")
    result = run(command)
    assert shown.splitlines() == (result.stdout + result.stderr).splitlines()
    fixed = run(f"{command} --fix")
    assert (fixed.exit_code, fixed.stdout.count("\n+ ")) == (0, 2)
    assert fixed.stderr == "repository: 1 note.\n"


def test_the_keys_of_json_are_on_the_page(repository):
    document = json.loads(run("trtspec check repository --json --fix").stdout)
    told = re.search(r"- `--json`: (.*?)\n- ", PAGE, re.DOTALL)[1]
    rows = (document, document["findings"][0], document["fixed"][0])
    assert {key for row in rows for key in row} <= set(re.findall(r"`(\w+)`", told))


def test_the_step_of_ci_runs(repository):
    steps = yaml.safe_load(PAGE.partition("```yaml\n")[2].partition("```")[0])["steps"]
    command, _, file = next(step["run"] for step in steps if step.get("run", "").startswith("trtspec")).partition(" > ")
    result = run(command)
    assert result.exit_code == 4
    assert len(json.loads(result.stdout)["runs"][0]["results"]) == 3
    assert next(step for step in steps if "with" in step)["with"] == {"sarif_file": file}
