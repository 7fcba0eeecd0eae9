"""Sweeps over how one deployment is used, and the report of them."""
