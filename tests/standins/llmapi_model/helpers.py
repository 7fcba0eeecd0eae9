"""Beside model.py, as in NVIDIA's folder: whether it can be imported shows that the folder is on Python's path."""


def answer_words(prompt: str, words: int) -> list[str]:
    return [f" {prompt}{number}" for number in range(words)]
