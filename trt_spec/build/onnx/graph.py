"""The ONNX graph of a Llama or Qwen2 model for ragged batches, with in-place KV caches.

Signature (T fed tokens in all, of B sequences with at most n each; m wanted rows of logits; S tokens of cache
capacity; L layers):

    input_ids      int64   [T]       the fed tokens of all sequences, one after the other, nothing padded
    padded_tokens  int64   [B, n]    for each sequence its fed tokens as indices into T; what is padding may say 0
    packed_tokens  int64   [T]       the way back: index of each fed token among the B * n padded ones
    query_seqlens  int32   [B]       how many tokens each sequence is fed; with 0 its cache stays as it is
    seqlens_k      int32   [B]       position of its last fed token; 0 for a sequence without
    logits_rows    int64   [m]       which of the T fed tokens get logits
    key.i, value.i float32 [B, kv_heads, S, head_size], i = 0 .. L-1; head_size is head_dim, made a multiple of 16
    ->
    logits         float32 [m, vocab_size]
    new_key.i, new_value.i: to be bound to the same memory as key.i, value.i (attention then writes in place)

All but attention runs on packed tokens, so sequences with few tokens pay nothing for those with many.
GroupQueryAttention rotates, writes the caches and attends in one node, and reads no position behind a sequence's last
one: its cost follows the tokens in use, whatever S is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from trt_spec.build.onnx.grid import GRID_BLOCK, GridWeight, HalvedWeight, find_grid, find_halves
from trt_spec.build.onnx.heads import widen_heads
from trt_spec.build.onnx.quantise import quantise
from trt_spec.build.onnx.weights import WeightFile
from trt_spec.plan.facts import ModelFacts, rotary_frequencies
from trt_spec.plan.model_files import LAYER_PREFIX
from trt_spec.serve.local_backend.engine_folder import cache_head_size

OPSET = 24
IR_VERSION = 11
MICROSOFT_OPSET = 1
FLOAT_ACTIVATIONS, INT8_ACTIVATIONS = 1, 4
"""MatMulNBits accuracy_level: products in float32, or in int8 with 0.4 to 0.7 % relative error. One row of int4 takes
40 % less time in int8, more rows a third."""

GRID = {"bits": 4, "block_size": GRID_BLOCK, "accuracy_level": FLOAT_ACTIVATIONS}

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
        self.is_exact = True  # whether every product so far is that of the checkpoint's own matrix
        self._max_seq_len = max_seq_len
        self._head_size = cache_head_size(facts.head_dim)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: set[str] = set()

    def build(self, on_layer: Callable[[int], None] = lambda _: None) -> onnx.ModelProto:
        """The whole model; calls ``on_layer`` with the number of layers done."""
        facts = self._facts
        embedding = self._load("model.embed_tokens.weight")
        hidden = self._node("Gather", [self._weights.add("embedding", embedding), "input_ids"], "embedded")
        self._add_rotary_tables()
        self._add_capacity()
        delta = ""
        for layer in range(facts.layers):
            hidden, delta = self._add_layer(layer, hidden, delta)
            on_layer(layer + 1)
        hidden = self._node("Add", [hidden, delta], "hidden")
        hidden = self._node("Gather", [hidden, "logits_rows"], "wanted")
        hidden = self._norm(hidden, "model.norm")
        head = embedding if facts.tied_embeddings else self._load("lm_head.weight")
        self._linear(hidden, "lm_head", [head], [None], output="logits")
        return self._model()

    def _add_rotary_tables(self) -> None:
        frequencies = np.asarray(rotary_frequencies(self._facts))
        frequencies = np.pad(frequencies, (0, self._head_size // 2 - len(frequencies)))
        angles = np.outer(np.arange(self._max_seq_len), frequencies)
        self._weights.add("rotary_cos", np.cos(angles).astype(np.float32))
        self._weights.add("rotary_sin", np.sin(angles).astype(np.float32))

    def _add_capacity(self) -> None:
        """int32 scalar: S, the bound of every sequence's length."""
        capacity = self._node("Shape", ["key.0"], "capacity_shape", start=2, end=3)
        capacity = self._node("Squeeze", [capacity], "capacity_int64")
        self._node("Cast", [capacity], "kv_capacity", to=TensorProto.INT32)

    def _add_layer(self, i: int, hidden: str, delta: str) -> tuple[str, str]:
        """The residual stream and what is still to be added to it, before and after layer ``i``; "" for nothing."""
        facts, prefix = self._facts, f"{LAYER_PREFIX}{i}"
        name = f"{prefix}.input_layernorm"
        if delta:
            normed, hidden = self._add_and_norm(hidden, delta, name)
        else:
            normed = self._norm(hidden, name)
        out = self._linear(
            self._attention(i, normed),
            f"attention_out.{i}",
            [self._widen(self._load(f"{prefix}.self_attn.o_proj.weight").T).T],
            [self._load(f"{prefix}.self_attn.o_proj.bias") if facts.output_bias else None],
        )
        normed, hidden = self._add_and_norm(hidden, out, f"{prefix}.post_attention_layernorm")
        return hidden, self._mlp(i, normed)

    def _attention(self, i: int, hidden: str) -> str:
        """q, k and v from one product; attention over the caches, into which it writes the new keys and values."""
        facts, prefix = self._facts, f"{LAYER_PREFIX}{i}.self_attn"
        names = ("q_proj", "k_proj", "v_proj")
        qkv = self._linear(
            hidden,
            f"qkv.{i}",
            [self._widen(self._load(f"{prefix}.{name}.weight")) for name in names],
            [self._widen(self._load(f"{prefix}.{name}.bias")) if facts.qkv_bias else None for name in names],
        )
        padded = self._node("Gather", [qkv, "padded_tokens"], f"qkv_padded.{i}")
        caches = [f"key.{i}", f"value.{i}"]
        lengths, rotary = ["seqlens_k", "kv_capacity"], ["rotary_cos", "rotary_sin"]
        outputs = [f"attended.{i}", *(f"new_{cache}" for cache in caches)]
        self._nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [padded, "", "", *caches, *lengths, *rotary, *[""] * 7, "query_seqlens"],
                outputs,
                name=f"attention.{i}",
                domain="com.microsoft",
                num_heads=facts.heads,
                kv_num_heads=facts.kv_heads,
                do_rotary=1,
                scale=facts.head_dim**-0.5,
            )
        )
        shape = self._ints("attended_shape", [-1, facts.heads * self._head_size])
        flat = self._node("Reshape", [outputs[0], shape], f"attended_flat.{i}")
        return self._node("Gather", [flat, "packed_tokens"], f"attended_packed.{i}")

    def _widen(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return widen_heads(values, self._facts.head_dim, self._head_size)

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
        silu = self._node("QuickGelu", [gate], f"gate_silu.{i}", domain="com.microsoft", alpha=1.0)
        gated = self._node("Mul", [silu, up], f"gated.{i}")
        down = self._load(f"{prefix}.down_proj.weight")
        bias = self._load(f"{prefix}.down_proj.bias") if facts.mlp_bias else None
        return self._linear(gated, f"down.{i}", [down], [bias])

    def _norm(self, hidden: str, name: str) -> str:
        scale = self._weights.add(f"{name}.scale", self._load(f"{name}.weight"))
        return self._node("RMSNormalization", [hidden, scale], name, axis=-1, epsilon=self._facts.rms_norm_eps)

    def _add_and_norm(self, hidden: str, delta: str, name: str) -> tuple[str, str]:
        """The norm of hidden + delta, and that sum."""
        scale = self._weights.add(f"{name}.scale", self._load(f"{name}.weight"))
        outputs = [name, "", "", f"{name}.input"]
        self._nodes.append(
            helper.make_node(
                "SkipSimplifiedLayerNormalization",
                [hidden, delta, scale],
                outputs,
                name=name,
                domain="com.microsoft",
                epsilon=self._facts.rms_norm_eps,
            )
        )
        return outputs[0], outputs[3]

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
        self._product(hidden, name, weight, product)
        if present:
            self._weights.add(f"{name}.bias", np.concatenate(present))
            self._node("Add", [product, f"{name}.bias"], output)
        return output

    def _product(self, hidden: str, name: str, weight: NDArray[np.float32], output: str) -> None:
        """hidden @ weight.T; int4 keeps a matrix that lies on a grid as it is, and rounds any other."""
        if self._bits == 32:
            self._node("MatMul", [hidden, self._weights.add(f"{name}.weight", weight.T)], output)
        elif self._bits == 4 and (grid := find_grid(weight)):
            self._grid_product(hidden, name, grid, output)
        elif self._bits == 4 and (halves := find_halves(weight)):
            self._halved_product(hidden, name, halves, output)
        else:
            self.is_exact = False
            packed = quantise(weight, self._bits)
            inputs = self._add_packed(name, packed.packed, packed.scales)
            block = {"bits": self._bits, "block_size": packed.block, "accuracy_level": INT8_ACTIVATIONS}
            self._n_bits([hidden, *inputs], weight.shape, output, **block)

    def _grid_product(self, hidden: str, name: str, grid: GridWeight, output: str) -> None:
        """The codes' product, and the offset of each block times the sum of its activations."""
        blocks, rows = grid.offsets.shape
        sums = f"block_sums.{blocks}"
        if sums not in self._constants:
            self._constants.add(sums)
            self._weights.add(sums, np.repeat(np.eye(blocks, dtype=np.float32), GRID_BLOCK, axis=0))
        inputs = self._add_packed(name, grid.packed, grid.scales)
        codes = self._n_bits([hidden, *inputs], (rows, blocks * GRID_BLOCK), f"{name}.codes", **GRID)
        summed = self._node("MatMul", [hidden, sums], f"{name}.sums")
        self._node("Gemm", [summed, self._weights.add(f"{name}.offsets", grid.offsets), codes], output)

    def _halved_product(self, hidden: str, name: str, halves: HalvedWeight, output: str) -> None:
        """8-bit codes as two of 4 bits, since the kernel for 8 bits rounds activations."""
        rows, blocks = halves.scales.shape
        shape = (rows, blocks * GRID_BLOCK)
        high = self._add_packed(f"{name}.high", halves.high, halves.scales * 16)
        low = self._add_packed(f"{name}.low", halves.low, halves.scales)
        low.append(self._weights.add(f"{name}.low.zero_points", np.zeros((rows, -(-blocks // 2)), np.uint8)))
        parts = [
            self._n_bits([hidden, *high], shape, f"{name}.high_codes", **GRID),
            self._n_bits([hidden, *low], shape, f"{name}.low_codes", **GRID),
        ]
        self._node("Add", parts, output)

    def _add_packed(self, name: str, packed: NDArray[np.uint8], scales: NDArray[np.float32]) -> list[str]:
        return [self._weights.add(f"{name}.packed", packed), self._weights.add(f"{name}.scales", scales)]

    def _n_bits(self, inputs: list[str], shape: tuple[int, ...], output: str, **block: int) -> str:
        """The product with a packed matrix of ``shape`` [out, in]; ``inputs`` end with its scales or zero points."""
        rows, columns = shape
        return self._node("MatMulNBits", inputs, output, domain="com.microsoft", K=columns, N=rows, **block)

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def _ints(self, name: str, values: list[int]) -> str:
        return self._constant(name, helper.make_tensor(name, TensorProto.INT64, [len(values)], values))

    def _constant(self, name: str, tensor: onnx.TensorProto) -> str:
        """Small constants live in the graph file, each once."""
        if name not in self._constants:
            self._constants.add(name)
            self._weights.initializers.append(tensor)
        return name

    def _model(self) -> onnx.ModelProto:
        facts = self._facts
        cache = ["batch", facts.kv_heads, "capacity", self._head_size]
        caches = [f"{kind}.{i}" for i in range(facts.layers) for kind in ("key", "value")]

        def info(name: str, dtype: int, shape: list[Any]) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, dtype, shape)

        inputs = [
            info("input_ids", TensorProto.INT64, ["fed"]),
            info("padded_tokens", TensorProto.INT64, ["batch", "most_fed"]),
            info("packed_tokens", TensorProto.INT64, ["fed"]),
            info("query_seqlens", TensorProto.INT32, ["batch"]),
            info("seqlens_k", TensorProto.INT32, ["batch"]),
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
