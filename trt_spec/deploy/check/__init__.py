"""`trtspec check`: faults of a model repository or engine folder, found before Triton is started."""
