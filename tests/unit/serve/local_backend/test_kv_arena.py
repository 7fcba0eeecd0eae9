"""The memory of the KV cache."""

from trt_spec.serve.local_backend.engine_folder import EngineLimits
from trt_spec.serve.local_backend.kv_arena import KvArena

LIMITS = EngineLimits(
    vocab_size=9, layers=2, kv_heads=2, head_size=16, max_batch_size=3, max_seq_len=32, max_draft_len=0
)


def test_a_copy_takes_over_the_first_tokens_of_another_row_in_every_layer():
    arena = KvArena(None, LIMITS, rows=3, max_tokens=32)
    for number, block in enumerate(arena.blocks.values()):
        block[2] = 1.0 + number
    arena.copy(2, 0, 5)
    assert len(arena.blocks) == 4
    for number, block in enumerate(arena.blocks.values()):
        assert (block[0, :, :5] == 1.0 + number).all()
        assert not block[0, :, 5:].any() and not block[1].any()
