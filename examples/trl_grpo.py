"""GRPO with TRL over several turns, rewarded by `kevin serve`: python trl_grpo.py MODEL REFERENCE.py ...

Each turn is one training sample, as Kevin trains (arXiv 2507.11948): its prompt has the earlier answers without their
thoughts, and its reward is its score plus the discounted scores of the turns after it. All turns of all trajectories of
a task are one group. With one turn this is ordinary GRPO.
"""

import sys
from pathlib import Path

from datasets import Dataset
from kevin_client import judge, returns, told
from trl import GRPOConfig, GRPOTrainer

PROMPT = 'Write a C++ kernel, extern "C" void launch(...), in one ```cpp block, for this PyTorch module:\n\n'


def rollouts(num_turns):
    """What plays trajectories for TRL: as many neighbouring equal prompts as there are turns stand for one of them."""

    def play(prompts, trainer):
        chats = [list(prompt) for prompt in prompts[::num_turns]]
        references = [chat[0]["content"].removeprefix(PROMPT) for chat in chats]
        tokenizer, turns, scores = trainer.processing_class, [], []
        for _ in range(num_turns):
            texts = tokenizer.apply_chat_template(chats, add_generation_prompt=True, tokenize=False)
            prompt_ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
            completion_ids, logprobs = trainer._generate_single_turn(prompt_ids, None, {}, 1)
            answers = tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
            results = judge(list(zip(references, answers, strict=True)), "answer")
            turns.append((prompt_ids, completion_ids, logprobs))
            scores.append([result.get("score") for result in results])
            for chat, result in zip(chats, results, strict=True):
                chat.append({"role": "assistant", "content": result.get("seen", "(no code)")})
                chat.append({"role": "user", "content": told(result)})
        prompt_ids, completion_ids, logprobs = (
            None if turns[0][part] is None else [of_turn[part][k] for k in range(len(chats)) for of_turn in turns]
            for part in range(3)
        )
        values = [value for own in zip(*scores, strict=True) for value in returns(own)]
        return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": logprobs, "value": values}

    return play


def kernel_return(completions, value, **_):
    """Each turn's return; None, which leaves it out of its group, where there was no verdict."""
    return value


def trainer(model, references, num_turns=4, **config):
    """A trainer over one prompt for each reference's text. ``config`` goes to GRPOConfig.

    ``num_turns`` divides ``num_generations``, trajectories times turns, and the samples of a process.
    """
    rows = [{"prompt": [{"role": "user", "content": PROMPT + text}]} for text in references]
    return GRPOTrainer(
        model=model,
        reward_funcs=kernel_return,
        rollout_func=rollouts(num_turns),
        train_dataset=Dataset.from_list(rows),
        args=GRPOConfig(**config),
    )


if __name__ == "__main__":
    trainer(sys.argv[1], [Path(path).read_text("utf-8-sig") for path in sys.argv[2:]]).train()
