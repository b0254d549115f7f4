"""A double of vLLM's engine, made to finish its answers one after another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def finishing_last_first(llm: Any, first: int) -> list[Any]:
    """From now on ``llm`` numbers requests from ``first`` and finishes one a step, the last of a call first.

    Returns what happens, of which each step is noted here.
    """
    at_once, left, happened = llm.generate, [], []
    llm.request_counter = SimpleNamespace(counter=first)

    def generate(prompts: Any, params: Any, use_tqdm: bool) -> Any:
        outputs = at_once(prompts, params, use_tqdm)
        for number, output in enumerate(outputs, start=llm.request_counter.counter):
            output.request_id, output.finished = str(number), True
        llm.request_counter.counter += len(outputs)
        left.extend(outputs)
        while left:
            llm.llm_engine.step()
            happened.append("step")
        return outputs

    llm.generate, llm.llm_engine = generate, SimpleNamespace(step=lambda: [left.pop()])
    return happened
