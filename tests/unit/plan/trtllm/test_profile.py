"""The recorded releases: what is known of each, and which others are refused."""

import dataclasses
import json

import pytest

from trt_spec.deploy.dialect import load_dialect
from trt_spec.errors import SpecError
from trt_spec.plan.toolchain import load_profile
from trt_spec.plan.toolchain.profile import PROFILES_FILE
from trt_spec.spec.rules import SUPPORTED_TENSORRT_LLM

VERSIONS = SUPPORTED_TENSORRT_LLM


def test_every_version_that_a_spec_may_name_has_a_profile_and_no_other():
    assert tuple(json.loads(PROFILES_FILE.read_text())) == VERSIONS


@pytest.mark.parametrize(
    ("version", "container", "tensorrt", "cuda", "driver", "tokens_per_block", "dialect", "flags"),
    [
        ("0.17.0", "25.01", "10.8.0.43", "12.8.0.038", "570.86.10", 64, "0.17", 66),
        ("0.18.2", "25.04", "10.9.0.34", "12.8.1.012", "570.124.06", 64, "0.17", 66),
        ("1.2.1", "26.07", "10.14.1.48", "13.1.0.036", "590.44.01", 32, "1.3.0rc3", 67),
    ],
)
def test_what_is_recorded(version, container, tensorrt, cuda, driver, tokens_per_block, dialect, flags):
    profile = load_profile(version)
    assert profile.container == f"nvcr.io/nvidia/tritonserver:{container}-trtllm-python-py3"
    assert (profile.tensorrt, profile.cuda, profile.driver) == (tensorrt, cuda, driver)
    assert (profile.tokens_per_block, profile.dialect, len(profile.flags)) == (tokens_per_block, dialect, flags)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_template_dialect_is_the_one_that_deploy_renders(version):
    assert load_profile(version).template_dialect == load_dialect(version).recorded


@pytest.mark.parametrize("version", VERSIONS)
def test_the_facts_of_a_profile_agree_with_each_other(version):
    profile = load_profile(version)
    assert profile.tokens_per_block == profile.plugin_config_fields["tokens_per_block"].default
    for dest, flag in profile.flags.items():
        assert flag.dest == dest
        assert flag.type in ("str", "int", "switch", "KVCacheType")
        assert flag.nargs in (None, "+")
        assert all(name.startswith("--") for name in flag.names)
        if flag.choices and isinstance(flag.default, str):
            assert flag.default in flag.choices
    names = [name for flag in profile.flags.values() for name in flag.names]
    assert len(names) == len(set(names))


def test_how_sure_each_fact_is():
    assert load_profile("0.17.0").flags_trust == "exact development tree"
    assert load_profile("0.18.2").flags_trust == "copy of 0.17.0.dev, partly unverified"
    assert "PARTLY UNVERIFIED" in load_profile("0.18.2").flags_status
    assert load_profile("1.2.1").flags_recorded == "1.2"
    for version in VERSIONS:
        assert set(load_profile(version).trust) == {
            "flags",
            "container",
            "min_driver",
            "paths",
            "quantizer",
            "dialect",
            "templates",
        }


def test_the_defaults_that_changed():
    """Facts: tokens_per_block, paged and FP8 context FMHA and the GEMM plugin between 0.17 and 1.x."""
    old, new = load_profile("0.17.0").flags, load_profile("1.2.1").flags
    changed = {dest for dest in old.keys() & new.keys() if old[dest].default != new[dest].default}
    assert changed == {
        "tokens_per_block",
        "use_paged_context_fmha",
        "use_fp8_context_fmha",
        "gemm_plugin",
        "visualize_network",
    }
    assert old.keys() - new.keys() == {"auto_parallel", "gpus_per_node", "cluster_key"}


def test_an_alias_finds_its_flag():
    profile = load_profile("1.2.1")
    assert profile.find_flag("--max_decoder_seq_len") is profile.flags["max_seq_len"]
    assert profile.find_flag("--max_output_len") is None


def test_a_profile_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_profile("1.2.1").container = "other"


@pytest.mark.parametrize("version", ["0.17.0.post1", "0.18.0", "0.19.0", "1.0.0", "1.2.0", "1.3.0rc3", "1.3.0rc20"])
def test_a_version_between_names_the_three_profiles(version):
    with pytest.raises(SpecError, match="is not recorded") as error:
        load_profile(version)
    assert "the three profiles: 0.17.0, 0.18.2 or 1.2.1" in error.value.remedy


@pytest.mark.parametrize("version", ["1.3.0rc21", "1.3.0rc24", "1.3.0", "1.3.0.post1", "1.4.0rc1", "2.0"])
def test_a_version_without_engines_names_the_way_out(version):
    with pytest.raises(SpecError, match=r"removed in 1\.3\.0rc21") as error:
        load_profile(version)
    assert "`backend: llmapi`" in error.value.remedy


@pytest.mark.parametrize("version", ["", "x", "1", "1.2.1 ", "1.2.1;rm", "v1.2.1"])
def test_no_version_at_all(version):
    with pytest.raises(SpecError, match="is no version of TensorRT-LLM"):
        load_profile(version)
