"""Stands in for a process that only has to be there: Triton's Python stub, a worker of the executor."""

import time

time.sleep(600)
