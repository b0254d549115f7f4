"""GRPO with TRL, rewarded by `kevin serve`: python trl_grpo.py MODEL REFERENCE.py ..."""

import sys
from pathlib import Path

from datasets import Dataset
from kevin_client import judge
from trl import GRPOConfig, GRPOTrainer

PROMPT = 'Write a C++ kernel, extern "C" void launch(...), in one ```cpp block, for this PyTorch module:\n\n'


def kernel_reward(completions, reference, **_):
    """The study's score; None, which leaves a completion out of its group, where there is no verdict."""
    texts = [c if isinstance(c, str) else c[-1]["content"] or "" for c in completions]
    return [result.get("score") for result in judge(list(zip(reference, texts, strict=True)), "answer")]


def trainer(model, references, **config):
    """A trainer over one prompt for each reference's text. ``config`` goes to GRPOConfig."""
    rows = [{"prompt": [{"role": "user", "content": PROMPT + text}], "reference": text} for text in references]
    return GRPOTrainer(
        model=model, reward_funcs=kernel_reward, train_dataset=Dataset.from_list(rows), args=GRPOConfig(**config)
    )


if __name__ == "__main__":
    trainer(sys.argv[1], [Path(path).read_text("utf-8-sig") for path in sys.argv[2:]]).train()
