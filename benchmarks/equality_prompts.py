"""Two hundred and ten prompts of our own, by category."""

from __future__ import annotations

_TASKS = (
    "sorts a list of records by two keys",
    "counts the words of a file",
    "checks whether a string is a palindrome",
    "merges two sorted arrays",
    "parses a date",
    "finds the shortest path in a grid",
    "computes a moving average",
    "removes duplicates and keeps the order",
    "validates an e-mail address",
    "reads a CSV file and sums a column",
)
_TOPICS = (
    "tides",
    "bread",
    "the piano",
    "volcanoes",
    "chess",
    "bees",
    "bridges",
    "the moon",
    "glass",
    "rivers",
    "clocks",
    "maps",
    "honey",
    "trains",
    "paper",
)
_KOREAN = ("바다", "김치", "한글", "서울의 지하철", "가을", "커피", "도서관", "산책", "음악", "시장")
_EMOJI = ("😀", "🐋", "🚲", "🌋", "🍞", "🎹", "🐝", "🌉", "🌙", "👩‍👩‍👧‍👦")
_PARAGRAPH = (
    "The lighthouse stood on a rock a mile from the harbour. Every evening the keeper climbed ninety steps, trimmed "
    "the lamp, wrote the weather into a book and watched the boats come home. "
)

PROMPTS: dict[str, tuple[str, ...]] = {
    "code": tuple(
        text.format(task)
        for task in _TASKS
        for text in ("Write a Python function that {}.", "Write a C function that {}.", "def solve(data):\n    # {}\n")
    ),
    "chat": tuple(
        text.format(topic)
        for topic in _TOPICS
        for text in ("Tell me three facts about {}.", "Why do people like {}?", "Write a short poem about {}.")
    ),
    "maths": tuple(
        f"What is {a} {operation} {b}? Show each step."
        for a in (17, 48, 125)
        for b in (6, 19, 37)
        for operation in "+-*"
    ),
    "Korean": tuple(
        text.format(topic)
        for topic in _KOREAN
        for text in ("{}에 대해 짧게 설명해 주세요.", "{}에 관한 시를 써 주세요.", "왜 사람들은 {}을 좋아하나요?")
    ),
    "emoji": tuple(
        text.format(emoji)
        for emoji in _EMOJI
        for text in (
            "What does {} mean?",
            "{} {} {} Continue this row of emoji.".replace("{}", "{0}"),
            "Story with {}:",
        )
    ),
    "long context": tuple(
        f"{_PARAGRAPH * (4 + 2 * (i % 8))}\nQuestion {i}: what did the keeper do?" for i in range(24)
    ),
    "translation": tuple(f"Translate into French: I would like to know more about {topic}." for topic in _TOPICS)
    + tuple(f"Translate into Korean: I would like to know more about {topic}." for topic in _TOPICS[:9]),
}
