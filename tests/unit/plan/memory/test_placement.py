"""Ranks over GPUs: every split of draft and target up to eight, shared or not, on one node or several."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_spec.plan.placement import plan_placement
from trt_spec.spec.model import Spec

SIZES = st.integers(1, 8)


def make_spec(target=1, draft=1, accept="tokens", gpus=8, nodes=1, target_gpus=None, draft_gpus=None, **models):
    return Spec.model_validate(
        {
            "name": "x",
            "backend": "engine",
            "hardware": {"gpu": "H200", "gpus": gpus, "nodes": nodes},
            "target": {"model": "a/b", "tensor_parallel": target, "gpus": target_gpus, **models.get("target_is", {})},
            "draft": {"model": "a/c", "tensor_parallel": draft, "gpus": draft_gpus},
            "speculation": {"accept": accept},
        }
    )


def codes(findings):
    return {finding.code: finding.severity for finding in findings}


@given(SIZES, SIZES, st.sampled_from(["tokens", "logits", "fast_logits"]), st.booleans())
def test_all_placements_up_to_eight_ranks_each(target, draft, accept, apart):
    total = 16 if apart else 8
    draft_gpus = list(range(8, 8 + draft)) if apart else None
    placement, found = plan_placement(make_spec(target, draft, accept, total, draft_gpus=draft_gpus))
    ranks = {"target": target, "draft": draft}
    for role, placed in placement.roles.items():
        assert len(set(placed.gpus)) == len(placed.gpus) == ranks[role]
        assert all(0 <= gpu < total for gpu in placed.gpus)
        assert placed.device_ids == placed.gpus
    ids = [i for role in ("draft", "target") for i in placement.roles[role].participant_ids]
    if accept == "fast_logits":
        assert placement.mode == "orchestrator-prespawned"
        assert placement.world_size == 1 + target + draft
        assert ids == list(range(1, placement.world_size))  # disjoint, rank 0 orchestrates, the draft's come first
    else:
        assert (placement.mode, placement.world_size, ids) == ("orchestrator-spawned", 1, [])
    assert placement.fast_logits == (accept == "fast_logits")
    assert bool(placement.shared_gpus) != apart
    assert "refuse" not in codes(found).values()


@given(SIZES, st.integers(1, 2))
def test_one_engine_is_led_by_its_ranks(tensor_parallel, pipeline_parallel):
    spec = Spec.model_validate(
        {
            "name": "x",
            "backend": "engine",
            "hardware": {"gpu": "H200", "gpus": 16},
            "target": {
                "model": "a/b", "tensor_parallel": tensor_parallel, "pipeline_parallel": pipeline_parallel
            },
            "speculation": {"mode": "none"},
        }
    )  # fmt: skip
    placement, found = plan_placement(spec)
    assert (placement.mode, placement.world_size) == ("leader", tensor_parallel * pipeline_parallel)
    assert placement.roles["target"].participant_ids == tuple(range(placement.world_size))
    assert found == ()


def test_named_gpus_are_used_in_their_order():
    placement, _ = plan_placement(make_spec(target=2, target_gpus=[3, 1], draft_gpus=[2]))
    assert placement.roles["target"].gpus == (3, 1)
    assert placement.shared_gpus == ()


@pytest.mark.parametrize(
    ("gpus", "message"), [([0, 8], "index 8"), ([1, 1], "an index twice"), ([0], "found 1 indices, expected 2")]
)
def test_gpus_that_cannot_be_are_refused_by_the_spec(gpus, message):
    with pytest.raises(ValueError, match=message):
        make_spec(target=2, target_gpus=gpus)


def test_pipeline_ranks_with_speculation_are_outside_the_support_matrix():
    _, found = plan_placement(make_spec(target_is={"pipeline_parallel": 2}))
    assert codes(found) == {"place-pipeline": "warn", "place-idle-gpus": "note"}
    assert found[0].role == "target"


def test_ranks_on_two_nodes_start_together():
    placement, found = plan_placement(make_spec(target=4, draft=1, gpus=4, nodes=2, draft_gpus=[4]))
    assert (placement.mode, placement.world_size) == ("orchestrator-prespawned", 6)
    assert (placement.roles["draft"].nodes, placement.roles["draft"].device_ids) == ((1,), (0,))
    assert codes(found) == {"place-nodes": "warn"}


def test_an_all_reduce_over_the_network_is_warned_about():
    placement, found = plan_placement(make_spec(target=8, draft=1, gpus=4, nodes=2))
    assert placement.roles["target"].nodes == (0, 0, 0, 0, 1, 1, 1, 1)
    assert codes(found) == {"place-nodes": "warn", "place-split-nodes": "warn"}


def test_a_second_node_that_is_not_used_changes_nothing():
    placement, found = plan_placement(make_spec(target=4, gpus=4, nodes=2))
    assert placement.mode == "orchestrator-spawned"
    assert codes(found) == {"place-idle-gpus": "note"}


def test_idle_gpus_are_offered_to_the_draft():
    _, (note,) = plan_placement(make_spec(target=4, gpus=8))
    assert note.code == "place-idle-gpus"
    assert "draft.gpus: [4]" in note.remedy


def test_llmapi_runs_both_models_in_one_group():
    spec = Spec.model_validate(
        {
            "name": "x",
            "backend": "llmapi",
            "hardware": {"gpu": "H100", "gpus": 8},
            "target": {"model": "a/b", "tensor_parallel": 8},
            "draft": {"model": "a/c"},
        }
    )
    placement, found = plan_placement(spec)
    assert (placement.mode, placement.world_size) == ("llmapi", 8)
    assert placement.roles["draft"].gpus == placement.roles["target"].gpus
    assert found == ()


def count(placement):
    """Visible GPUs, nodes, processes of each node."""
    nodes = range(placement.node_count)
    return placement.visible_gpus, len(nodes), [placement.process_count(node) for node in nodes]


def test_gpus_and_processes_are_counted_for_every_mode():
    spawned, _ = plan_placement(make_spec(target=4, draft=2))
    assert count(spawned) == (4, 1, [1 + 4 + 2])
    assert spawned.process_count(0) > spawned.world_size == 1  # what the orchestrator spawns comes on top
    together, _ = plan_placement(make_spec(target=4, draft=1, accept="fast_logits", draft_gpus=[6]))
    assert count(together) == (7, 1, [1 + 4 + 1])  # ids count from 0, also where the first ones are idle
    apart, _ = plan_placement(make_spec(target=4, gpus=4, nodes=2, draft_gpus=[5]))
    assert count(apart) == (4, 2, [1 + 4, 1])


def test_gpus_and_processes_of_one_engine_and_of_llmapi():
    def place(backend, target, **sections):
        values = {"name": "x", "backend": backend, "hardware": {"gpu": "H100", "gpus": 8}, "target": target, **sections}
        return plan_placement(Spec.model_validate(values))[0]

    alone = {"speculation": {"mode": "none"}}
    target = {"model": "a/b", "tensor_parallel": 4}
    assert count(place("engine", target, **alone)) == (4, 1, [4])  # no orchestrator
    assert count(place("llmapi", target, draft={"model": "a/c"})) == (4, 1, [4])  # the draft needs none of its own
    assert count(place("llmapi", {**target, "gpus": [2, 3, 4, 5]}, **alone)) == (6, 1, [4])
