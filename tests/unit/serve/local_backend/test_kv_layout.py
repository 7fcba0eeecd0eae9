"""Which idle rows give way, on numbers alone."""

from hypothesis import given
from hypothesis import strategies as st

from trt_spec.serve.local_backend.kv_layout import PARK_AFTER_STEPS, Layout, Spot, plan_layout

LONG_IDLE = PARK_AFTER_STEPS


def running(row, tokens=50):
    return Spot(row, tokens, True, 0)


def idle(row, tokens=50, steps=LONG_IDLE):
    return Spot(row, tokens, False, steps)


def test_a_hole_is_filled_by_the_last_running_row():
    assert plan_layout([running(7), idle(5), idle(4, 0), running(3)], 128, 128) == Layout((5,), (3, 1))
    assert plan_layout([running(7), running(5), idle(4), idle(3, 0)], 128, 128) == Layout()
    assert plan_layout([idle(7, 0), running(5)], 128, 128) == Layout()


def test_an_idle_row_between_two_rounds_stays():
    spots = [running(0), idle(1, 900, LONG_IDLE - 1), running(2)]
    assert plan_layout(spots, 1024, 128) == Layout()


def test_a_long_idle_row_is_parked_if_that_halves_the_capacity():
    spots = [running(0), idle(1, 900)]
    assert plan_layout(spots, 1024, 512) == Layout((1,), None)
    assert plan_layout(spots, 1024, 640) == Layout()


def test_nothing_moves_while_nobody_runs():
    assert plan_layout([idle(0), idle(1, 0)], 1024, 128) == Layout()


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans(), st.integers(0, 64)), max_size=8))
def test_only_idle_rows_are_parked_and_only_running_ones_move_into_nothing(drawn):
    spots = [Spot(10 + i, tokens, *rest) for i, (tokens, *rest) in enumerate(drawn)]
    by_row = {spot.row: spot for spot in spots}
    layout = plan_layout(spots, 256, 128)
    for row in layout.park:
        assert not by_row[row].is_running and by_row[row].tokens
    if layout.move is not None:
        row, position = layout.move
        assert by_row[row].is_running and spots.index(by_row[row]) > position
        assert not spots[position].tokens or spots[position].row in layout.park
        assert not spots[position].is_running
