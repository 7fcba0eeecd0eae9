"""What TensorRT-LLM's engines do, as a table, and a probe for every row that an endpoint can show."""
