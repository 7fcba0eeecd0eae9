"""vLLM on the CPU in fp32, run by benchmarks/peers.py in an environment of its own: peer_vllm.py MODEL"""

from __future__ import annotations

import os
import sys

from peer_worker import serve, take_stdout


def main() -> None:
    answers = take_stdout()
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")  # GiB
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    engine = LLM(model=sys.argv[1], dtype="float32", max_model_len=2048, max_num_seqs=8)

    def generate(prompts: list[list[int]], tokens: int) -> list[int]:
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        outputs = engine.generate([TokensPrompt(prompt_token_ids=ids) for ids in prompts], params, use_tqdm=False)
        return [len(output.outputs[0].token_ids) for output in outputs]

    serve(generate, answers)


if __name__ == "__main__":
    main()
