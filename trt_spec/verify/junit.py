"""A report as JUnit XML, which every CI system shows."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from trt_spec.verify.report import Report, describe_judgement, probe_rows, verdict_line
from trt_spec.verify.verdict import Fault, find_faults

# What XML 1.0 cannot hold, escaped or not.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: Report) -> str:
    """One test case a prompt, and one for everything else that has a verdict; faults are failures."""
    suite = ElementTree.Element("testsuite", name="trtspec verify", timestamp=report.conditions.date)
    failures = 0
    for prompt in report.prompts:
        case = ElementTree.SubElement(suite, "testcase", classname="lossless", name=_clean(prompt.id))
        if prompt.judgement.outcome == "different":
            failures += 1
            words = describe_judgement(prompt.judgement)
            _fail(case, prompt.judgement.fault or "wrong_token", words)
    faults = {fault.name: fault for fault in find_faults(report)}
    for name, names in _CASES.items():
        case = ElementTree.SubElement(suite, "testcase", classname="verify", name=name)
        found: list[Fault] = [faults[fault] for fault in names if fault in faults]
        failures += bool(found)
        for fault in found:
            _fail(case, fault.name, f"{fault.found} {fault.remedy}")
    out = ElementTree.SubElement(suite, "system-out")
    out.text = _clean(
        "\n".join([verdict_line(report), *(f"{what}: {found}" for what, found in probe_rows(report.probes))])
    )
    suite.set("tests", str(len(report.prompts) + len(_CASES)))
    suite.set("failures", str(failures))
    suite.set("errors", "0")
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


_CASES = {
    "drafting": ("speculation_inactive", "drafts_not_real"),
    "isolation": ("cross_request_leak",),
    "sampling": ("seed_ignored", "seed_reused", "distribution_differs"),
    "odd prompts": ("poison_prompt",),
    "strictness": ("not_strict",),
    "speed-up": ("too_slow",),
    "time to first token": ("first_token_late",),
}


def _fail(case: ElementTree.Element, kind: str, message: str) -> None:
    ElementTree.SubElement(case, "failure", type=kind, message=_clean(message))


def _clean(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
