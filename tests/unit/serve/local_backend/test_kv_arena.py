"""The memory of the KV cache, moved about."""

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_spec.serve.local_backend import kv_arena
from trt_spec.serve.local_backend.engine_folder import EngineLimits
from trt_spec.serve.local_backend.kv_arena import KvArena

ROWS, MAX_TOKENS = 3, 32
LIMITS = EngineLimits(
    vocab_size=9, layers=1, kv_heads=2, head_size=5, max_batch_size=ROWS, max_seq_len=MAX_TOKENS, max_draft_len=0
)
CHANGES = st.lists(st.integers(1, MAX_TOKENS) | st.just("move"), max_size=8)


@settings(max_examples=300)
@given(
    lengths=st.tuples(st.just(0), st.integers(1, 8), st.integers(1, 8)).flatmap(st.permutations),
    bad=st.integers(0, 1),
    changes=CHANGES,
)
def test_rows_keep_what_they_hold_and_a_cleared_one_leaves_no_trace(lengths, bad, changes):
    """One row holds NaN; the capacity changes, and rows move to where nothing is."""
    with patch.object(kv_arena, "CAPACITY_STEP_TOKENS", 4):
        arena = KvArena(None, LIMITS, rows=ROWS, max_tokens=MAX_TOKENS)
        arena.resize(8, [0] * ROWS)
        full = [row for row in range(ROWS) if lengths[row]]
        for number, row in enumerate(full):
            arena._view("key.0")[arena.position[row], :, : lengths[row]] = np.nan if number == bad else 1.0 + row
        for change in changes:
            if change == "move":
                empty = lengths.index(0)
                last = max(full, key=arena.position.__getitem__)
                arena.move(last, arena.position[empty], lengths[last])
            else:
                arena.resize(change, lengths)
    arena.clear(full[bad])
    good = full[1 - bad]
    assert (arena._view("key.0")[arena.position[good], :, : lengths[good]] == 1.0 + good).all()
    assert not np.isnan(arena._blocks["key.0"]).any()
