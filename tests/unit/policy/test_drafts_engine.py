"""Drafts in a vLLM that is installed, on a GPU or on a CPU: the likeliest answer is the same with them and without."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("vllm") is None:
    pytest.skip("vLLM is not installed (pip install 'kevin-study[gpu]')", allow_module_level=True)

ASK = """
import json, sys
from vllm import LLM, SamplingParams
from kevin.policy.drafts import drafting

if __name__ == "__main__":
    settings = {"max_model_len": 256, "max_num_seqs": 8, "enforce_eager": True, "gpu_memory_utilization": 0.1}
    llm = LLM(model=sys.argv[1], dtype="float32", skip_tokenizer_init=True, **settings, **drafting(int(sys.argv[2])))
    asked = [{"prompt_token_ids": [5 + i, 6, 7]} for i in range(4)]
    params = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True, detokenize=False)
    twice = [llm.generate(asked, params, use_tqdm=False) for _ in range(2)]
    with open(sys.argv[3], "w") as file:
        json.dump([[list(answer.outputs[0].token_ids) for answer in answers] for answers in twice], file)
"""


def answers(model: Path, num_draft_tokens: int, out: Path) -> list[list[list[int]]]:
    run = subprocess.run(
        [sys.executable, "-c", ASK, str(model), str(num_draft_tokens), str(out)], check=False, timeout=300
    )
    assert run.returncode == 0
    found: list[list[list[int]]] = json.loads(out.read_text())
    return found


def test_the_likeliest_answers_are_the_same(tmp_path: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=256, initializer_range=0.08, **sizes)).save_pretrained(tmp_path / "model")
    plain = answers(tmp_path / "model", 0, tmp_path / "plain.json")
    assert answers(tmp_path / "model", 8, tmp_path / "drafts.json") == plain
    assert plain[0] == plain[1] and all(len(answer) == 100 for answer in plain[0])
