"""What runs inside Triton: the orchestrator of draft and target, and the local engine that stands in for NVIDIA's.

The folder is copied into model repositories and backend directories as ``trtspec_serve``; so it imports nothing else of
trtspec, and its own modules only relatively.
"""
