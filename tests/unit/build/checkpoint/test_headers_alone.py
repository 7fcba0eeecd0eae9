"""Big models are planned without big memory; the benchmark prints the seconds."""

from trt_spec.build.checkpoint.shard import Headers, Sharding, plan_rank, plan_ranks
from trt_spec.plan.facts import resolve_facts
from trt_spec.plan.known_models import load_known_model
from trt_spec.plan.model_files import TensorInfo
from trt_spec.plan.tensors import Split, rank_weight_bytes
from trt_spec.util.safetensors_header import LENGTH_BYTES, parse_header


def make_405b():
    """Facts and tensor headers of Llama 3.1 405B; there is no file behind them."""
    facts = resolve_facts(load_known_model("meta-llama/Llama-3.1-405B-Instruct").config, source="405B")
    sizes = {"q": facts.heads * facts.head_dim, "kv": facts.kv_heads * facts.head_dim}
    hidden, inner = facts.hidden_size, facts.intermediate_size
    shapes = dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), (facts.vocab_size, hidden))
    shapes["model.norm.weight"] = (hidden,)
    for i in range(facts.layers):
        layer = f"model.layers.{i}."
        shapes |= {
            f"{layer}input_layernorm.weight": (hidden,),
            f"{layer}post_attention_layernorm.weight": (hidden,),
            f"{layer}self_attn.q_proj.weight": (sizes["q"], hidden),
            f"{layer}self_attn.k_proj.weight": (sizes["kv"], hidden),
            f"{layer}self_attn.v_proj.weight": (sizes["kv"], hidden),
            f"{layer}self_attn.o_proj.weight": (hidden, sizes["q"]),
            f"{layer}mlp.gate_proj.weight": (inner, hidden),
            f"{layer}mlp.up_proj.weight": (inner, hidden),
            f"{layer}mlp.down_proj.weight": (hidden, inner),
        }
    return facts, {name: TensorInfo("BF16", shape) for name, shape in shapes.items()}


def test_the_first_rank_of_405b_needs_headers_alone():
    facts, tensors = make_405b()
    split = Split(facts, "none", "auto", "bfloat16", 8, 2, "1.3.0rc3")
    plan = plan_rank(Sharding(split, False, None, False), Headers(tensors), 0)
    header = plan.header
    spans = parse_header("rank0", header[LENGTH_BYTES:], plan.total_bytes)
    assert len(spans) == 63 * 7 + 1 + 3
    assert spans["transformer.layers.62.mlp.proj.weight"].shape == (16384, 53248 // 8)
    assert plan.total_bytes - len(header) == rank_weight_bytes(facts, "none", "bfloat16", 8, 2, "1.3.0rc3")[0]


def test_every_tensor_of_405b_is_taken_once():
    facts, tensors = make_405b()
    split = Split(facts, "none", "auto", "bfloat16", 8, 1, "1.3.0rc3", embedding_axis=0)
    plans = plan_ranks(Sharding(split, False, None, False), tensors)
    taken = {}
    for plan in plans:
        for tensor in plan.tensors:
            for piece in getattr(tensor.recipe, "pieces", ()):
                if not tensor.recipe.shared:
                    size = (piece.rows[1] - piece.rows[0]) * (piece.columns[1] - piece.columns[0])
                    taken[piece.source] = taken.get(piece.source, 0) + size
    for name, elements in taken.items():
        shape = tensors[name].shape
        assert elements == shape[0] * shape[1], name
    assert len(taken) == 2 + 7 * 126
