"""Triton on a GPU host: in NVIDIA's container natively, or by starting that container."""
