"""Every input that the served models declare is honoured, known to be harmless, or refused: never dropped."""

import json
from pathlib import Path

import numpy as np
import pytest

from trt_spec import deploy
from trt_spec.deploy.dialect import load_dialect
from trt_spec.deploy.repository import ADDED_INPUTS
from trt_spec.serve import text_request
from trt_spec.serve.contract import ADVICE, HARMLESS, NEUTRAL, STREAMING_MODEL, TARGET_MODEL, UNARY_MODEL
from trt_spec.serve.local_backend import engine_request
from trt_spec.serve.triton_request import BadRequest, TensorReader

READ = {
    TARGET_MODEL: engine_request.READ,
    UNARY_MODEL: text_request.READ,
    STREAMING_MODEL: text_request.READ,
}
ASKING = {"INT32": 7, "INT64": 7, "UINT8": 7, "UINT64": 7, "FP32": 0.7, "FP16": 0.7, "BOOL": True, "STRING": b"x"}
CASES = [
    (version, model, tensor)
    for version in ("0.17.0", "0.18.2", "1.2.1")
    for model in READ
    for tensor in (*load_dialect(version).models[model].inputs, *(ADDED_INPUTS if model != TARGET_MODEL else ()))
]


class Request:
    def __init__(self, name, values):
        self.name, self.as_numpy = lambda: name, lambda: values

    def inputs(self):
        return [self]


@pytest.mark.parametrize(("version", "model", "tensor"), CASES, ids=lambda value: getattr(value, "name", value))
def test_no_declared_input_is_dropped(version, model, tensor):
    value = ASKING[tensor.dtype]
    values = np.array([[value]], np.object_ if tensor.dtype == "STRING" else None)
    reader = TensorReader(Request(tensor.name, values))
    if tensor.name in READ[model] | HARMLESS or value in NEUTRAL.get(tensor.name, ()):
        reader.check_supported(READ[model])
    else:
        with pytest.raises(BadRequest, match=f"{tensor.name} .*not supported"):
            reader.check_supported(READ[model])


@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_values_ask_for_nothing(name):
    for value in NEUTRAL[name]:
        TensorReader(Request(name, np.array([[value]]))).check_supported(frozenset())


@pytest.mark.parametrize("values", [np.array([[b"", b""]], np.object_), np.empty((1, 0), np.int32)])
def test_empty_values_ask_for_nothing(values):
    TensorReader(Request("bad_words", values)).check_supported(frozenset())


WHAT_BECOMES_OF = {
    "honoured": """text_input max_tokens bad_words stop_words exclude_input_in_output end_id top_k top_p temperature
        repetition_penalty min_length min_tokens presence_penalty frequency_penalty random_seed seed return_log_probs
        stream embedding_bias_words embedding_bias_weights num_draft_tokens return_perf_metrics
        use_draft_logits""",
    "harmless": "pad_id",
    "neutral or refused": """length_penalty return_context_logits return_generation_logits num_return_sequences
        beam_width return_kv_cache_reuse_stats return_num_input_tokens return_num_output_tokens""",
    "refused": """decoder_text_input image_input image_bytes_input image_url_input image_sizes_input video_bytes_input
        prompt_embedding_table prompt_vocab_size prompt_table_extra_id lora_task_id lora_weights lora_config
        guided_decoding_guide_type guided_decoding_guide""",
}
"""Every input of tensorrt_llm_bls and ensemble in every recorded version."""

RECORDED = sorted((Path(deploy.__file__).parent / "dialects").glob("[0-9]*.json"))


def test_the_table_names_every_recorded_input_and_no_other():
    named = [name for names in WHAT_BECOMES_OF.values() for name in names.split()]
    assert len(named) == len(set(named))
    recorded = set()
    for file in RECORDED:
        models = json.loads(file.read_text())["models"]
        recorded |= {tensor["name"] for model in (UNARY_MODEL, STREAMING_MODEL) for tensor in models[model]["inputs"]}
    assert len(RECORDED) >= 7
    assert recorded == set(named)


@pytest.mark.parametrize(
    ("fate", "name"), [(fate, name) for fate, names in WHAT_BECOMES_OF.items() for name in names.split()]
)
def test_b109_what_speculation_cannot_honour_is_refused_with_advice(fate, name):
    assert (name in text_request.READ, name in HARMLESS, name in NEUTRAL and name not in text_request.READ) == (
        fate == "honoured",
        fate == "harmless",
        fate == "neutral or refused",
    )
    if "refused" in fate:
        with pytest.raises(BadRequest) as caught:
            TensorReader(Request(name, np.array([[7.5]]))).check_supported(text_request.READ)
        assert name in str(caught.value) and ADVICE[name] in str(caught.value)
