"""The ONNX graph of a Llama or Qwen2 model for ragged batches, with in-place KV caches.

Signature (T fed tokens in all, of B sequences with at most n each; m wanted rows of logits; S tokens of cache
capacity; L layers):

    input_ids      int64   [T]       the fed tokens of all sequences, one after the other, nothing padded
    positions      int64   [1, T]    position of each in its sequence
    cache_entries  int64   [T, kv_heads, 3]  where its keys and values go: sequence, head, position
    padded_tokens  int64   [B, n]    for each sequence its fed tokens as indices into T; what is padding may say 0
    packed_tokens  int64   [T]       the way back: index of each fed token among the B * n padded ones
    past_tokens    int64   [B]       position of each sequence's first fed token
    logits_rows    int64   [m]       which of the T fed tokens get logits
    key.i, value.i float32 [B, kv_heads, S, head_dim], i = 0 .. L-1
    ->
    logits         float32 [m, vocab_size]
    new_key.i, new_value.i: to be bound to the same memory as key.i, value.i (ScatterND then writes in place)

All but attention runs on packed tokens, so sequences with few tokens pay nothing for those with many; only queries are
padded, for attention. S is free because the Attention operator's cost on a CPU grows with the capacity it is shown,
not with the tokens in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from trt_spec.build.onnx.quantise import quantise
from trt_spec.build.onnx.weights import WeightFile
from trt_spec.plan.facts import ModelFacts, rotary_frequencies
from trt_spec.plan.model_files import LAYER_PREFIX

OPSET = 24
IR_VERSION = 11
MICROSOFT_OPSET = 1
INT8_ACTIVATIONS = 4
"""MatMulNBits accuracy_level: products in int8, 0.4 to 0.7 % relative error, about twice as fast as in fp32."""

LoadTensor = Callable[[str], NDArray[np.float32]]


class GraphBuilder:
    """Builds the graph layer by layer while its weights stream into ``weights``.

    ``load`` returns the float32 tensor [out, in] of a Hugging Face name. ``weight_bits`` is 32 (float32), 8 or 4.
    """

    def __init__(
        self, facts: ModelFacts, load: LoadTensor, weights: WeightFile, *, weight_bits: int, max_seq_len: int
    ) -> None:
        self._facts = facts
        self._load = load
        self._weights = weights
        self._bits = weight_bits
        self._max_seq_len = max_seq_len
        self._nodes: list[onnx.NodeProto] = []
        self._constants: set[str] = set()

    def build(self, on_layer: Callable[[int], None] = lambda _: None) -> onnx.ModelProto:
        """The whole model; calls ``on_layer`` with the number of layers done."""
        facts = self._facts
        embedding = self._load("model.embed_tokens.weight")
        hidden = self._node("Gather", [self._weights.add("embedding", embedding), "input_ids"], "embedded")
        self._add_rotary_tables()
        self._add_mask()
        for layer in range(facts.layers):
            hidden = self._add_layer(layer, hidden)
            on_layer(layer + 1)
        hidden = self._node("Gather", [hidden, "logits_rows"], "wanted")
        hidden = self._norm(hidden, "model.norm")
        head = embedding if facts.tied_embeddings else self._load("lm_head.weight")
        self._linear(hidden, "lm_head", [head], [None], output="logits")
        return self._model()

    def _add_rotary_tables(self) -> None:
        angles = np.outer(np.arange(self._max_seq_len), rotary_frequencies(self._facts))
        self._weights.add("rotary_cos", np.cos(angles).astype(np.float32))
        self._weights.add("rotary_sin", np.sin(angles).astype(np.float32))

    def _add_mask(self) -> None:
        """bool [B, 1, n, S]: each padded token sees its sequence's cache up to its own position."""
        zero, one = self._scalar("zero", 0), self._scalar("one", 1)
        fed = self._node("Shape", ["padded_tokens"], "fed_shape", start=1, end=2)
        fed = self._node("Squeeze", [fed], "fed")
        steps = self._node("Range", [zero, fed, one], "steps")
        past = self._node("Unsqueeze", ["past_tokens", self._ints("axis_1", [1])], "past_column")
        padded = self._node("Add", [past, steps], "padded_positions")
        capacity = self._node("Shape", ["key.0"], "capacity_shape", start=2, end=3)
        capacity = self._node("Squeeze", [capacity], "capacity")
        slots = self._node("Range", [zero, capacity, one], "slots")
        column = self._node("Unsqueeze", [padded, self._ints("axes_1_3", [1, 3])], "position_column")
        self._node("LessOrEqual", [slots, column], "mask")

    def _add_layer(self, i: int, hidden: str) -> str:
        facts, prefix = self._facts, f"{LAYER_PREFIX}{i}"
        normed = self._norm(hidden, f"{prefix}.input_layernorm")
        attended = self._attention(i, normed)
        out = self._linear(
            attended,
            f"attention_out.{i}",
            [self._load(f"{prefix}.self_attn.o_proj.weight")],
            [self._load(f"{prefix}.self_attn.o_proj.bias") if facts.output_bias else None],
        )
        hidden = self._node("Add", [hidden, out], f"after_attention.{i}")
        normed = self._norm(hidden, f"{prefix}.post_attention_layernorm")
        return self._node("Add", [hidden, self._mlp(i, normed)], f"hidden.{i}")

    def _attention(self, i: int, hidden: str) -> str:
        """q, k and v from one product; keys and values scattered into the caches; attention over the caches."""
        facts, prefix = self._facts, f"{LAYER_PREFIX}{i}.self_attn"
        q_size, kv_size = facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim
        names = ("q_proj", "k_proj", "v_proj")
        qkv = self._linear(
            hidden,
            f"qkv.{i}",
            [self._load(f"{prefix}.{name}.weight") for name in names],
            [self._load(f"{prefix}.{name}.bias") if facts.qkv_bias else None for name in names],
        )
        qk, v = self._split(qkv, "qk_v_sizes", [q_size + kv_size, kv_size], (f"qk.{i}", f"v.{i}"))
        qk = self._node("Unsqueeze", [qk, self._ints("axis_0", [0])], f"qk_batch.{i}")
        heads = facts.heads + facts.kv_heads
        tables = ["rotary_cos", "rotary_sin", "positions"]
        qk = self._node("RotaryEmbedding", [qk, *tables], f"qk_rotated.{i}", num_heads=heads)
        qk = self._node("Squeeze", [qk, self._ints("axis_0", [0])], f"qk_packed.{i}")
        q, k = self._split(qk, "q_k_sizes", [q_size, kv_size], (f"q.{i}", f"k.{i}"))
        keys = self._scatter(k, f"key.{i}")
        values = self._scatter(v, f"value.{i}")
        q = self._node("Gather", [q, "padded_tokens"], f"q_padded.{i}")
        q = self._node("Reshape", [q, self._ints("q_shape", [0, 0, facts.heads, facts.head_dim])], f"q_heads.{i}")
        q = self._node("Transpose", [q], f"q_by_head.{i}", perm=[0, 2, 1, 3])
        out = self._node("Attention", [q, keys, values, "mask"], f"attended.{i}")
        out = self._node("Transpose", [out], f"attended_by_token.{i}", perm=[0, 2, 1, 3])
        out = self._node("Reshape", [out, self._ints("attended_shape", [-1, q_size])], f"attended_flat.{i}")
        return self._node("Gather", [out, "packed_tokens"], f"attended_packed.{i}")

    def _scatter(self, packed: str, cache: str) -> str:
        """The cache with the keys or values [T, kv_heads * head_dim] of the fed tokens written into it."""
        shape = self._ints("kv_shape", [0, self._facts.kv_heads, self._facts.head_dim])
        packed = self._node("Reshape", [packed, shape], f"{cache}.fed")
        return self._node("ScatterND", [cache, "cache_entries", packed], f"new_{cache}")

    def _split(self, tensor: str, name: str, sizes: list[int], outputs: tuple[str, str]) -> tuple[str, str]:
        """Two parts of the last dimension."""
        self._nodes.append(helper.make_node("Split", [tensor, self._ints(name, sizes)], list(outputs), axis=-1))
        return outputs

    def _mlp(self, i: int, hidden: str) -> str:
        """SwiGLU: down(silu(gate(x)) * up(x)), gate and up from one product."""
        facts, prefix = self._facts, f"{LAYER_PREFIX}{i}.mlp"
        names = ("gate_proj", "up_proj")
        both = self._linear(
            hidden,
            f"gate_up.{i}",
            [self._load(f"{prefix}.{name}.weight") for name in names],
            [self._load(f"{prefix}.{name}.bias") if facts.mlp_bias else None for name in names],
        )
        gate, up = f"gate.{i}", f"up.{i}"
        self._nodes.append(helper.make_node("Split", [both], [gate, up], axis=1, num_outputs=2))
        sigmoid = self._node("Sigmoid", [gate], f"gate_sigmoid.{i}")
        silu = self._node("Mul", [gate, sigmoid], f"gate_silu.{i}")
        gated = self._node("Mul", [silu, up], f"gated.{i}")
        down = self._load(f"{prefix}.down_proj.weight")
        bias = self._load(f"{prefix}.down_proj.bias") if facts.mlp_bias else None
        return self._linear(gated, f"down.{i}", [down], [bias])

    def _norm(self, hidden: str, name: str) -> str:
        scale = self._weights.add(f"{name}.scale", self._load(f"{name}.weight"))
        return self._node("RMSNormalization", [hidden, scale], name, axis=-1, epsilon=self._facts.rms_norm_eps)

    def _linear(
        self,
        hidden: str,
        name: str,
        matrices: list[NDArray[np.float32]],
        biases: list[NDArray[np.float32] | None],
        output: str | None = None,
    ) -> str:
        """hidden @ concatenated matrices [out, in] transposed, plus the biases where there are any."""
        output = output or name
        weight = np.concatenate(matrices) if len(matrices) > 1 else matrices[0]
        present = [bias for bias in biases if bias is not None]
        product = f"{name}.product" if present else output
        if self._bits == 32:
            self._weights.add(f"{name}.weight", weight.T)
            self._node("MatMul", [hidden, f"{name}.weight"], product)
        else:
            packed = quantise(weight, self._bits)
            self._weights.add(f"{name}.packed", packed.packed)
            self._weights.add(f"{name}.scales", packed.scales)
            rows, columns = weight.shape
            attributes = {"K": columns, "N": rows, "bits": self._bits, "block_size": packed.block}
            self._node(
                "MatMulNBits",
                [hidden, f"{name}.packed", f"{name}.scales"],
                product,
                domain="com.microsoft",
                accuracy_level=INT8_ACTIVATIONS,
                **attributes,
            )
        if present:
            self._weights.add(f"{name}.bias", np.concatenate(present))
            self._node("Add", [product, f"{name}.bias"], output)
        return output

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def _ints(self, name: str, values: list[int]) -> str:
        return self._constant(name, helper.make_tensor(name, TensorProto.INT64, [len(values)], values))

    def _scalar(self, name: str, value: int) -> str:
        return self._constant(name, helper.make_tensor(name, TensorProto.INT64, [], [value]))

    def _constant(self, name: str, tensor: onnx.TensorProto) -> str:
        """Small constants live in the graph file, each once."""
        if name not in self._constants:
            self._constants.add(name)
            self._weights.initializers.append(tensor)
        return name

    def _model(self) -> onnx.ModelProto:
        facts = self._facts
        cache = ["batch", facts.kv_heads, "capacity", facts.head_dim]
        caches = [f"{kind}.{i}" for i in range(facts.layers) for kind in ("key", "value")]

        def info(name: str, dtype: int, shape: list[Any]) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, dtype, shape)

        inputs = [
            info("input_ids", TensorProto.INT64, ["fed"]),
            info("positions", TensorProto.INT64, [1, "fed"]),
            info("cache_entries", TensorProto.INT64, ["fed", facts.kv_heads, 3]),
            info("padded_tokens", TensorProto.INT64, ["batch", "most_fed"]),
            info("packed_tokens", TensorProto.INT64, ["fed"]),
            info("past_tokens", TensorProto.INT64, ["batch"]),
            info("logits_rows", TensorProto.INT64, ["rows"]),
            *(info(name, TensorProto.FLOAT, cache) for name in caches),
        ]
        outputs = [
            info("logits", TensorProto.FLOAT, ["rows", facts.vocab_size]),
            *(info(f"new_{name}", TensorProto.FLOAT, cache) for name in caches),
        ]
        graph = helper.make_graph(self._nodes, "decoder", inputs, outputs, self._weights.initializers)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", MICROSOFT_OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="trtspec")
