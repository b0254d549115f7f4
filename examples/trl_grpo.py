"""GRPO with TRL, rewarded by `kevin serve`: python trl_grpo.py MODEL REFERENCE.py ..."""

import sys
from pathlib import Path

from datasets import Dataset
from kevin_client import judge, text_of
from trl import GRPOConfig, GRPOTrainer

PROMPT = 'Write a C++ kernel, extern "C" void launch(...), in one ```cpp block, for this PyTorch module:\n\n'


def kernel_reward(completions, reference, **_):
    """The study's score; None, which leaves a completion out of its group, where there is no verdict."""
    pairs = list(zip(reference, map(text_of, completions), strict=True))
    return [result.get("score") for result in judge(pairs, "answer")]


def trainer(model, references, **config):
    """A trainer over one prompt for each reference's text. ``config`` goes to GRPOConfig."""
    rows = [{"prompt": [{"role": "user", "content": PROMPT + text}], "reference": text} for text in references]
    return GRPOTrainer(
        model=model, reward_funcs=kernel_reward, train_dataset=Dataset.from_list(rows), args=GRPOConfig(**config)
    )


if __name__ == "__main__":
    trainer(sys.argv[1], [Path(path).read_text("utf-8-sig") for path in sys.argv[2:]]).train()
