"""From prompts to the requests of a load: chat template, lengths, draft length, seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from trt_spec.errors import SpecError
from trt_spec.verify.load.request import LoadRequest
from trt_spec.verify.tokenizer import TargetTokenizer
from trt_spec.verify.workload.lengths import draw_tokens, fit_text
from trt_spec.verify.workload.prompts import Prompt

Range = tuple[int, int]


@dataclass(frozen=True)
class Shape:
    """How long prompts and answers are, in tokens, low to high inclusive. None leaves a prompt as it is.

    ``exact_output`` makes every answer as long as asked, whatever the model would say (min_tokens).
    """

    prompt_tokens: Range | None = None
    output_tokens: Range = (128, 128)
    exact_output: bool = False
    kinds: tuple[str, ...] = ()
    seed: int = 0


def select_prompts(prompts: Sequence[Prompt], kinds: Sequence[str]) -> tuple[Prompt, ...]:
    """The prompts of these categories, all without any. Raises SpecError for a category that none has."""
    known = {prompt.kind for prompt in prompts}
    wrong = [kind for kind in kinds if kind not in known]
    if wrong:
        raise SpecError(
            f"No prompt is of the category {wrong[0]!r} (there are: {', '.join(sorted(known))}).",
            remedy="Name one of these.",
        )
    return tuple(prompt for prompt in prompts if not kinds or prompt.kind in kinds)


def build_requests(
    prompts: Sequence[Prompt],
    count: int,
    shape: Shape,
    tokenizer: TargetTokenizer | None,
    *,
    num_draft_tokens: int | None = None,
) -> tuple[LoadRequest, ...]:
    """``count`` requests: prompts in an order of the seed, repeated as needed, each with lengths of the shape.

    What a file says of a row (output_tokens, input_tokens) goes before the shape. Prompt lengths need the tokenizer and
    are exact, its chat template included. Raises SpecError where they cannot be had.
    """
    chosen = list(select_prompts(prompts, shape.kinds))
    if not any(prompt.timestamp_s is not None for prompt in chosen):
        random.Random(shape.seed).shuffle(chosen)
    outputs = draw_tokens(*shape.output_tokens, count, shape.seed)
    inputs = draw_tokens(*shape.prompt_tokens, count, shape.seed + 1) if shape.prompt_tokens else (None,) * count
    corpus = [prompt.text for prompt in prompts if prompt.text]
    requests = []
    for index, prompt in enumerate(islice(cycle(chosen), count)):
        max_tokens = prompt.output_tokens or outputs[index]
        requests.append(
            LoadRequest(
                id=prompt.id,
                kind=prompt.kind,
                text=_render(prompt, prompt.input_tokens or inputs[index], corpus, tokenizer, shape.seed + index),
                max_tokens=max_tokens,
                min_tokens=max_tokens if shape.exact_output else None,
                num_draft_tokens=num_draft_tokens,
                seed=shape.seed + index + 1,
            )
        )
    return tuple(requests)


def render_prompt(prompt: Prompt, tokenizer: TargetTokenizer | None) -> str:
    """The text to send: through the chat template where the model has one, the last message alone otherwise."""
    if tokenizer is None:
        return prompt.text
    return tokenizer.render_turns(prompt.turns) if prompt.turns else tokenizer.render_prompt(prompt.text)


def _render(
    prompt: Prompt, tokens: int | None, corpus: Sequence[str], tokenizer: TargetTokenizer | None, seed: int
) -> str:
    if tokens is None:
        return render_prompt(prompt, tokenizer)
    if tokenizer is None:
        raise SpecError(
            f"Prompt {prompt.id!r} is to have {tokens} tokens, and only the target's tokenizer can count them.",
            remedy="Give --tokenizer the model's folder.",
        )

    def count(text: str) -> int:
        return len(tokenizer.encode(tokenizer.render_prompt(text)))

    whole = count(prompt.text) if prompt.text else 0
    # A longer prompt is cut; a shorter one keeps its request in front and gets text of other prompts behind.
    texts, beginning = ([prompt.text], "") if whole > tokens else (corpus or [prompt.text], prompt.text)
    return tokenizer.render_prompt(fit_text(texts, tokens, count, seed, beginning=beginning))
