"""What is sent: prompts of ours by category, files of users in the field's layouts, lengths to the token."""

from trt_spec.verify.workload.prompts import Prompt, load_prompts

__all__ = ["Prompt", "load_prompts"]
