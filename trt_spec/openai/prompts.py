"""The prompts of a request: rendered messages, texts, or token ids that a text stands for."""

from __future__ import annotations

import asyncio

from trt_spec.openai.api_error import bad_request
from trt_spec.openai.chat_template import ChatTemplates
from trt_spec.openai.generation import check_length
from trt_spec.openai.messages import template_messages
from trt_spec.openai.request_fields import ChatRequest, CompletionRequest
from trt_spec.openai.triton_connection import Limits
from trt_spec.openai.vocabulary import MANY_CHARS, Vocabulary


async def render_chat(
    asked: ChatRequest, templates: ChatTemplates, limits: Limits, vocabulary: Vocabulary, max_messages: int
) -> str:
    """The prompt that the model's template makes of the messages."""
    if len(asked.messages) > max_messages:
        raise bad_request(f"There are {len(asked.messages)} messages, expected at most {max_messages}.", "messages")
    messages = template_messages(asked.messages)
    contents = [message.get("content", "") for message in messages]
    for content in contents:
        check_length(content, limits, vocabulary, "messages")
    tools = [] if asked.tool_choice == "none" else [tool.model_dump() for tool in asked.tools or ()]

    def render() -> str:
        return templates.render(
            messages,
            tools=tools,
            add_generation_prompt=asked.add_generation_prompt,
            name=asked.chat_template,
            extra=asked.chat_template_kwargs,
        )

    return render() if sum(map(len, contents)) <= MANY_CHARS else await asyncio.to_thread(render)


def completion_prompts(asked: CompletionRequest, vocabulary: Vocabulary, max_prompts: int) -> list[str]:
    """The texts to go on from; token ids only where a text is encoded to just these."""
    given = asked.prompt
    if isinstance(given, str):
        return [given]
    if not given:
        raise bad_request("prompt is empty.", "prompt")
    prompts = [given] if isinstance(given[0], int) else given
    if len(prompts) * asked.choices > max_prompts:
        raise bad_request(
            f"{len(prompts)} prompts with {asked.choices} choices each, expected at most {max_prompts} choices in all.",
            "prompt",
        )
    return [prompt if isinstance(prompt, str) else vocabulary.prompt_text(prompt) for prompt in prompts]
