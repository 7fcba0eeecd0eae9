"""The strict parser of trtllm-build's command lines."""

import pytest

from trt_spec.errors import SpecError
from trt_spec.plan.toolchain import load_profile
from trt_spec.plan.trtllm_flags import check_flags, judge_flags

SOUND = (
    "--checkpoint_dir /c --output_dir=/e --max_batch_size 8 --max_decoder_seq_len 100 --kv_cache_type paged "
    "--use_paged_context_fmha enable --gather_generation_logits --gemm_plugin disable "
    "--lora_target_modules attn_q attn_k --speculative_decoding_mode draft_tokens_external"
)


def kinds(line: str, version: str = "1.2.1") -> list[str]:
    return [fault.kind for fault in judge_flags(("trtllm-build", *line.split()), load_profile(version))]


@pytest.mark.parametrize("version", ["0.17.0", "0.18.2", "1.2.1"])
def test_a_sound_line_has_no_fault(version):
    assert kinds(SOUND, version) == []
    check_flags(("trtllm-build", *SOUND.split()), load_profile(version))
    check_flags(("trtllm-build",), load_profile(version))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("--max_output_len 512", "unknown"),
        ("--max_batch 8", "unknown"),  # argparse would take the abbreviation
        ("-max_batch_size", "unknown"),
        ("stray", "unknown"),
        ("--max_batch_size", "value"),
        ("--max_batch_size=", "value"),
        ("--max_batch_size eight", "value"),
        ("--max_batch_size 8.0", "value"),
        ("--max_batch_size 8 9", "value"),
        ("--gather_generation_logits enable", "value"),
        ("--gather_generation_logits=1", "value"),
        ("--gemm_plugin bf16", "value"),
        ("--use_paged_context_fmha true", "value"),
        ("--kv_cache_type pages", "value"),
        ("--lora_target_modules attn_q nothing", "value"),
        ("--lora_target_modules", "value"),
        ("--max_seq_len 1 --max_decoder_seq_len 2", "repeated"),
        ("--max_batch_size 8 --max_batch_size 8", "repeated"),
    ],
)
def test_one_fault(line, kind):
    assert kinds(line) == [kind]


def test_a_flag_that_another_version_has():
    assert kinds("--auto_parallel 1", "0.17.0") == []
    assert kinds("--auto_parallel 1", "1.2.1") == ["unknown"]
    assert kinds("--gemm_plugin nvfp4", "1.2.1") == []
    assert kinds("--gemm_plugin nvfp4", "0.17.0") == ["value"]
    assert kinds("--visualize_network", "0.17.0") == []
    assert kinds("--visualize_network", "1.2.1") == ["value"]


def test_the_error_names_every_fault_and_suggests():
    argv = ("trtllm-build", "--use_paged_contex_fmha", "enable", "--max_batch_size", "x")
    with pytest.raises(SpecError) as error:
        check_flags(argv, load_profile("1.2.1"))
    assert error.value.found == (
        "trtllm-build of TensorRT-LLM 1.2.1 has no flag --use_paged_contex_fmha. "
        "--max_batch_size of TensorRT-LLM 1.2.1 expects a whole number, found 'x'."
    )
    assert error.value.remedy == "Did you mean --use_paged_context_fmha?"
