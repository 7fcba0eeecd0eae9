"""What a repository means beyond its syntax: each module holds the rules about one idea, RULES all of them."""

from trt_spec.deploy.check.rules import (
    batch,
    concurrency,
    engine_record,
    kv_cache,
    llmapi,
    logits,
    placement,
    speculation,
    tokenizer,
    transactions,
)

RULES = (
    *engine_record.RULES,
    *batch.RULES,
    *speculation.RULES,
    *kv_cache.RULES,
    *logits.RULES,
    *placement.RULES,
    *transactions.RULES,
    *concurrency.RULES,
    *tokenizer.RULES,
    *llmapi.RULES,
)
