import pytest

from trt_spec.deploy.check.rules.reading import INT32, INT64, read_fraction, read_integer


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("8192", 8192),
        ("8192.0", 8192),
        ("1e4", 1),
        (" +7 ", 7),
        ("-3x", -3),
        ("007", 7),
        ("", None),
        ("x1", None),
        ("٣", None),
        ("2147483648", None),
        ("9" * 5000, None),
    ],
)
def test_whole_numbers_are_read_as_stoi_does(text, read):
    assert read_integer(text, INT32) == read


def test_a_wider_type_holds_more():
    assert read_integer("2147483648", INT64) == 1 << 31


@pytest.mark.parametrize(
    ("text", "read"),
    [("0.4", 0.4), ("90%", 90.0), ("0,4", 0.0), (".5", 0.5), ("1e-1x", 0.1), ("1e999", None), ("%", None), ("", None)],
)
def test_decimal_numbers_are_read_as_stof_does(text, read):
    assert read_fraction(text) == read


def found(repository, model, key, value):
    """Code, severity and text of what is said of one parameter's value."""
    original = repository.file(model).read_text()
    repository.set(model, **{key: value})
    rows = repository.findings("parameter-value", "parameter-unread")
    for row in rows:
        assert row.line is None or value in repository.line(row)
    repository.file(model).write_text(original)
    return [(row.code, row.severity, row.what) for row in rows]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("max_beam_width", "0", "expected a whole number of at least 1"),
        ("max_beam_width", "-1", "expected a whole number of at least 1"),
        ("max_beam_width", "1x", "is read as 1;"),
        ("max_tokens_in_paged_kv_cache", "1e4", "is read as 1;"),
        ("max_tokens_in_paged_kv_cache", "-5", "at least 1"),
        ("kv_cache_free_gpu_mem_fraction", "90%", "expected a number between 0 and 1"),
        ("kv_cache_free_gpu_mem_fraction", "0.4,", "is read as 0.4;"),
        ("kv_cache_free_gpu_mem_fraction", "1.5", "between 0 and 1"),
        ("kv_cache_free_gpu_mem_fraction", "nan", "between 0 and 1"),
        ("kv_cache_free_gpu_mem_fraction", "0", "between 0 and 1"),
        ("kv_cache_host_memory_bytes", "-1", "a whole number of bytes"),
        ("kv_cache_host_memory_bytes", "4G", "is read as 4;"),
        ("max_attention_window_size", "0", "is refused"),
        ("max_attention_window_size", "1024,-1", "is refused"),
        ("sink_token_length", "0", "at least 1"),
        ("iter_stats_max_iterations", "-1", "at least 0"),
    ],
)
def test_what_the_backend_refuses_or_takes_for_something_else(nvidia, key, value, says):
    ((code, severity, what),) = found(nvidia(), "tensorrt_llm", key, value)
    assert (code, severity) == ("parameter-value", "error")
    assert says in what
    assert f"{key} is {value!r}" in what


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        ("tensorrt_llm", "max_beam_width", "abc"),
        ("tensorrt_llm", "max_tokens_in_paged_kv_cache", "lots"),
        ("tensorrt_llm", "max_tokens_in_paged_kv_cache", "99999999999"),
        ("tensorrt_llm", "kv_cache_free_gpu_mem_fraction", "most"),
        ("tensorrt_llm", "max_attention_window_size", "all"),
        ("tensorrt_llm", "enable_kv_cache_reuse", "yes"),
        ("tensorrt_llm", "enable_kv_cache_reuse", "tRue"),
        ("tensorrt_llm", "batch_scheduler_policy", "MAX_UTILIZATION"),
        ("tensorrt_llm", "decoding_mode", "topk"),
        ("tensorrt_llm_bls", "accumulate_tokens", "maybe"),
        ("preprocessing", "add_special_tokens", "on"),
        ("postprocessing", "skip_special_tokens", "on"),
    ],
)
def test_what_is_passed_over(nvidia, model, key, value):
    ((code, severity, what),) = found(nvidia(), model, key, value)
    assert (code, severity) == ("parameter-unread", "warning")
    assert f"{key} is {value!r}, expected" in what


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        ("tensorrt_llm", "max_tokens_in_paged_kv_cache", "8192.0"),
        ("tensorrt_llm", "max_attention_window_size", "max_sequence_length"),
        ("tensorrt_llm", "max_attention_window_size", "1024,512"),
        ("tensorrt_llm", "iter_stats_max_iterations", "ExecutorConfig::kDefaultIterStatsMaxIterations"),
        ("tensorrt_llm", "enable_kv_cache_reuse", "TRUE"),
        ("tensorrt_llm", "kv_cache_host_memory_bytes", "45000000000"),
        ("tensorrt_llm", "batch_scheduler_policy", "max_utilization"),
        ("tensorrt_llm", "kv_cache_free_gpu_mem_fraction", ""),
        ("tensorrt_llm", "max_beam_width", "${max_beam_width}"),
        ("preprocessing", "add_special_tokens", "False"),
    ],
)
def test_what_is_read_as_it_is_written(nvidia, model, key, value):
    assert found(nvidia(), model, key, value) == []


def test_a_documented_default_that_is_misread_is_no_error(nvidia):
    ((_code, severity, what),) = found(nvidia(), "tensorrt_llm", "lora_cache_host_memory_bytes", "1G")
    assert severity == "warning"
    assert "is read as 1;" in what


def test_nvidias_python_model_reads_otherwise(nvidia):
    repository = nvidia()
    repository.edit("tensorrt_llm", 'backend: "tensorrtllm"', 'backend: "python"')
    assert found(repository, "tensorrt_llm", "max_beam_width", "abc") == []


def test_flags_that_the_backend_does_not_know_count_as_unset(theirs):
    repository = theirs()
    repository.set("tensorrt_llm", enable_kv_cache_reuse="yes")
    assert [row.severity for row in repository.findings("kv-reuse-off")] == ["error"]
