"""Reading nvidia-smi's table of links."""

import pytest

from trt_spec.plan.all_reduce import parse_topology

FOUR = """\
        GPU0    GPU1    GPU2    GPU3    mlx5_0  CPU Affinity    NUMA Affinity
GPU0     X      NV18    NV18    NV18    PXB     0-55            0
GPU1    NV18     X      NV18    NV18    NODE    0-55            0
GPU2    NV18    NV18     X      SYS     NODE    0-55            0
GPU3    NV18    NV18    SYS      X      NODE    0-55            0
mlx5_0  PXB     NODE    NODE    NODE     X
"""


def test_links_of_all_pairs():
    links = parse_topology(FOUR)
    assert len(links) == 6
    assert links[2, 3] == "SYS"
    assert {link for pair, link in links.items() if pair != (2, 3)} == {"NV18"}


@pytest.mark.parametrize("text", ["", "\n", "nvidia-smi: not found\n", "\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n"])
def test_no_links_where_there_are_none(text):
    assert parse_topology(text) == {}
