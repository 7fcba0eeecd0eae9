import numpy as np
import pytest

from trt_spec.serve.distribution import draw, softmax


class Fixed:
    def __init__(self, value):
        self._value = value

    def random(self):
        return self._value


def test_softmax_does_not_overflow():
    np.testing.assert_allclose(softmax(np.array([1000.0, 1000.0, -1000.0], np.float32)), [0.5, 0.5, 0.0])


@pytest.mark.filterwarnings("error")
def test_softmax_reaches_over_all_of_float32():
    largest = np.finfo(np.float32).max
    assert softmax(np.array([largest, -largest], np.float32)).tolist() == [1.0, 0.0]


def test_a_draw_falls_on_weights_in_proportion_and_never_on_zeros():
    weights = np.array([0.0, 1.0, 0.0, 3.0, 0.0])
    drawn = [draw(weights, Fixed(u)) for u in (0.0, 0.2499, 0.25, 0.9999)]
    assert drawn == [1, 1, 3, 3]
    assert draw(weights, Fixed(1.0)) == 3  # what rounding may make of a number below 1
