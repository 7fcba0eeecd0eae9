"""What is asked of a repository: each module holds the rules about one idea, RULES all of them."""

from collections.abc import Callable, Iterator

from trt_spec.deploy.check.finding import CheckFinding
from trt_spec.deploy.check.rules import (
    batch,
    callers,
    concurrency,
    drafting,
    engines,
    ensembles,
    kv_cache,
    llmapi,
    logits,
    medusa,
    orchestrator,
    ownership,
    pair,
    parameter_values,
    parameters,
    placement,
    speculation,
    structure,
    tensors,
    tokenizer,
    transactions,
)
from trt_spec.deploy.check.view import RepositoryView

RULES: tuple[Callable[[RepositoryView], Iterator[CheckFinding]], ...] = (
    *structure.RULES,
    *tensors.RULES,
    *parameters.RULES,
    *parameter_values.RULES,
    *callers.RULES,
    *orchestrator.RULES,
    *drafting.RULES,
    *ensembles.RULES,
    *ownership.RULES,
    *engines.RULES,
    *batch.RULES,
    *speculation.RULES,
    *medusa.RULES,
    *pair.RULES,
    *kv_cache.RULES,
    *logits.RULES,
    *placement.RULES,
    *transactions.RULES,
    *concurrency.RULES,
    *tokenizer.RULES,
    *llmapi.RULES,
)
