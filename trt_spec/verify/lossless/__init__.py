"""Probes that show what comparing greedy answers one by one cannot: sampling, isolation, noise, poison, real drafts."""
