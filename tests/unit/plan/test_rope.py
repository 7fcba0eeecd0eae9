from trt_spec.plan.rope import check_rope

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def test_no_scaling_and_linear_scaling_are_older_than_every_version():
    for config in ({}, {"rope_scaling": None}, {"rope_scaling": {"type": "linear", "factor": 2.0}}):
        assert check_rope(config, "0.17.0", "target") == ()


def test_the_spelling_of_transformers_5_is_read():
    assert check_rope({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}}, "1.2.1", "draft") == ()
    (found,) = check_rope({"rope_parameters": {"rope_type": "yarn"}}, "1.2.1", "draft")
    assert "'yarn'" in found.message


def test_every_missing_key_is_named():
    (found,) = check_rope({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "1.2.1", "target")
    for key in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings"):
        assert key in found.message


def test_a_scaling_that_is_no_object_is_refused():
    (found,) = check_rope({"rope_scaling": "llama3"}, "1.2.1", "target")
    assert found.severity == "refuse"
