"""What this machine can do: readings of it, and pure judgements over them."""
