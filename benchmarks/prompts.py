"""What the benchmarks ask of SmolLM2."""

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = (
    "What is the capital of France, and what is it known for?",
    "Write a short story about a lighthouse keeper.",
    "Explain how a bicycle stays upright.",
    "List ten animals that live in the sea.",
    "How do I bake a simple loaf of bread?",
    "Write a Python function that reverses a list.",
    "Why is the sky blue?",
    "Give me advice for learning to play the piano.",
)
