"""Task and past turns -> conversation; completion -> kernel. The same templates serve training and test.

Chains of thought are dropped, every earlier kernel and summary is kept with its evaluation, in order; when the token
budget is short the oldest turns go first (arXiv 2507.11948, section 3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from kevin.core import abi
from kevin.core.errors import TaskError
from kevin.core.types import (
    Conversation,
    Dialect,
    Frozen,
    Kernel,
    Language,
    Message,
    Outcome,
    Task,
    Turn,
    Verdict,
)

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
SUMMARY = "Summary:"
FENCES: dict[tuple[Dialect, Language], str] = {
    ("c_abi", "cpp"): "cpp",
    ("c_abi", "cuda"): "cuda",
    ("load_inline", "cpp"): "python",
    ("load_inline", "cuda"): "python",
}

_C_ABI_BASE = """\
Write a fast {language} kernel for this PyTorch module.

```python
{source}
```

This header is put before your code:

```{fence}
{header}```

Define `{launcher}` with exactly this signature, in one complete {language} file of your own: no libraries, no PyTorch.
All tensors are contiguous and row-major. The result must match PyTorch; then only speed counts.
{example}Your kernel is compiled, checked and timed, and you see the result before your next turn.
Think first. Then give the whole file in one ```{fence} block, and close with one line that starts with "{summary}".
"""

_C_ABI_EXAMPLE = """\
For example, an element-wise sum of two inputs:

```{fence}
{code}```

"""

_EXAMPLE_CPP = """\
extern "C" void launch(const float* a, const float* b, float* out) {
  for (int64_t i = 0; i < out_size; i++) {
    out[i] = a[i] + b[i];
  }
}
"""

_EXAMPLE_CUDA = """\
__global__ void add(const float* a, const float* b, float* out) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < out_size) out[i] = a[i] + b[i];
}
extern "C" void launch(const float* a, const float* b, float* out, cudaStream_t stream) {
  add<<<(out_size + 255) / 256, 256, 0, stream>>>(a, b, out);
}
"""

_INLINE_BASE = """\
Write fast {language} kernels for this PyTorch module.

```python
{source}
```

Replace its PyTorch operators by raw {language} that you compile with `torch.utils.cpp_extension.load_inline`, in a \
class
`ModelNew` with the same constructor and the same `forward`. Use torch.nn only for Parameter, containers and
initialisation; every operator's work must be done by your own code. Do not use try/except.
{example}Your code is compiled, checked and timed, and you see the result before your next turn.
Think first. Then give the complete Python file in one ```python block, and close with one line that starts with \
"{summary}".
"""

_INLINE_EXAMPLE = '''\
For example, an element-wise sum of two inputs:

```python
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
__global__ void add_kernel(const float* a, const float* b, float* out, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}
torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  auto out = torch::empty_like(a);
  int64_t n = a.numel();
  add_kernel<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""
ops = load_inline("add", "torch::Tensor add(torch::Tensor a, torch::Tensor b);", cuda_sources=source, functions=["add"])

class ModelNew(nn.Module):
    def forward(self, a, b):
        return ops.add(a, b)
```

'''

_NEXT = "{feedback}\nWrite the complete new code."


class Parsed(Frozen):
    """A completion taken apart."""

    kernel: Kernel | None
    """None: parse error, see ``problem``."""
    summary: str
    problem: str | None = None


def parse_completion(text: str, dialect: Dialect, language: Language) -> Parsed:
    """Drop the chain of thought, take the last complete code block and the summary after it."""
    text = text.replace("\r\n", "\n")
    answer = text.rsplit(THINK_CLOSE, 1)[-1] if THINK_CLOSE in text else text
    if THINK_OPEN in answer:
        return Parsed(kernel=None, summary="", problem="the chain of thought was never closed")
    blocks = list(re.finditer(r"^ {0,3}```[^\n`]*\n(.*?)^ {0,3}```[ \t]*$", answer, re.DOTALL | re.MULTILINE))
    if not blocks:
        cut = "the answer ends inside a code block" if "```" in answer else "the answer holds no code block"
        return Parsed(kernel=None, summary="", problem=cut)
    tail = answer[blocks[-1].end() :]
    at = tail.find(SUMMARY)
    summary = tail[at + len(SUMMARY) :].strip().splitlines()[0:1] if at >= 0 else []
    source = blocks[-1].group(1)
    if not source.strip():
        return Parsed(kernel=None, summary="", problem="the code block is empty")
    return Parsed(
        kernel=Kernel(dialect=dialect, language=language, source=source), summary=summary[0] if summary else ""
    )


def opening_is_expected(text: str, opening: str = "Okay,") -> bool:
    """Whether the chain of thought opens as the base model's do: one minus its mean is the Not-Okay ratio."""
    return text.removeprefix(THINK_OPEN).lstrip().startswith(opening)


_FEEDBACK_HEADS = {
    Outcome.PARSE_ERROR: "Parse error",
    Outcome.REFUSED: "Rule violation",
    Outcome.COMPILE_ERROR: "Compile error",
    Outcome.RUNTIME_ERROR: "Runtime error",
    Outcome.TIMEOUT: "Runtime error (time limit)",
    Outcome.INCORRECT: "Correctness error",
    Outcome.QUARANTINED: "Correctness error (implausible timing)",
}


_PROFILE = {
    "bandwidth_share": "It reaches {} of the memory bandwidth.",
    "flop_share": "It reaches {} of the arithmetic peak.",
    "achieved_occupancy_share": "Of the warps that a multiprocessor holds {} are active.",
    "own_kernel_share": "Its own kernels take {} of the time on the device.",
}
"""By the name of a verdict's detail; shares are told with two significant digits, above timing noise."""


def feedback(outcome: Outcome, message: str, speedup: float | None, *, max_chars: int = 1200) -> str:
    """The evaluation result as the policy reads it. Speedups have two significant digits, above timing noise."""
    if outcome is Outcome.CORRECT:
        assert speedup is not None, "a correct kernel carries its speedup"
        return f"Correct, {float(f'{speedup:.2g}'):g}x the speed of PyTorch. It can be faster."
    text = message.strip()
    if len(text) > max_chars:
        text = text[:max_chars] + " [...]"
    return f"{_FEEDBACK_HEADS[outcome]}: {text}"


def verdict_feedback(verdict: Verdict, *, max_chars: int = 1200, with_profile: bool = False) -> str:
    """``with_profile``: where a correct kernel stands against its device."""
    text = feedback(verdict.outcome, verdict.message, verdict.speedup, max_chars=max_chars)
    if not with_profile or verdict.outcome is not Outcome.CORRECT:
        return text
    return " ".join([text, *_profile(verdict.details)])


def _profile(details: Mapping[str, float | int | str | None]) -> Iterator[str]:
    known = {name: value for name, value in details.items() if isinstance(value, int | float)}
    for name, sentence in _PROFILE.items():
        if name in known:
            yield sentence.format(f"{float(f'{100 * known[name]:.2g}'):g} %")
    if isinstance(stalls := details.get("stalls"), str):
        yield f"Warps wait for {stalls}."
    if "registers" in known:
        spills = known.get("spilled_bytes", 0)
        spilled = f"{spills:g} bytes spilled" if spills else "nothing spilled"
        yield f"It uses {known['registers']:g} registers a thread, {spilled}."


def base_prompt(task: Task, dialect: Dialect, language: Language, *, with_example: bool) -> str:
    """The first user message. Raises TaskError when the dialect needs a spec that the task does not carry."""
    fence, name = FENCES[dialect, language], {"cpp": "C++", "cuda": "CUDA"}[language]
    if dialect == "load_inline":
        return _INLINE_BASE.format(
            language=name,
            source=task.source.strip(),
            example=_INLINE_EXAMPLE if with_example else "",
            summary=SUMMARY,
        )
    if task.spec is None:
        raise TaskError(f"task {task.id} carries no spec; inspect it first (kevin.tasks.format.inspect_task)")
    code = _EXAMPLE_CUDA if language == "cuda" else _EXAMPLE_CPP
    return _C_ABI_BASE.format(
        language=name,
        fence=fence,
        source=task.source.strip(),
        header=abi.header(task.spec, language),
        launcher=abi.LAUNCHER,
        example=_C_ABI_EXAMPLE.format(fence=fence, code=code) if with_example else "",
        summary=SUMMARY,
    )


def past_answer(turn: Turn, fence: str) -> str:
    """What a later turn sees of an earlier answer: kernel and summary, never the chain of thought."""
    if turn.kernel is None:
        return "(no code)"
    summary = f"\n{SUMMARY} {turn.summary}" if turn.summary else ""
    return f"```{fence}\n{turn.kernel.source.rstrip()}\n```{summary}"


def conversation(
    task: Task,
    past: Sequence[Turn],
    *,
    dialect: Dialect,
    language: Language,
    count_tokens: Callable[[Conversation], int] | None = None,
    max_prompt_tokens: int | None = None,
) -> Conversation:
    """The conversation that asks for turn ``len(past) + 1``.

    The worked example stands in the first turn only. With a budget, the oldest turns are left out until the
    conversation fits; the newest is always kept. Raises TaskError when even that does not fit.
    """
    fence = FENCES[dialect, language]
    base = base_prompt(task, dialect, language, with_example=not past)
    first_kept = 0
    while True:
        messages = [Message(role="user", content=base)]
        for turn in past[first_kept:]:
            messages.append(Message(role="assistant", content=past_answer(turn, fence)))
            messages.append(Message(role="user", content=_NEXT.format(feedback=turn.feedback)))
        result = tuple(messages)
        if count_tokens is None or max_prompt_tokens is None or (n := count_tokens(result)) <= max_prompt_tokens:
            return result
        if first_kept >= len(past) - 1:
            raise TaskError(
                f"task {task.id}: the prompt of turn {len(past) + 1} has {n} tokens, over the budget of "
                f"{max_prompt_tokens}; raise rollout.max_prompt_tokens"
            )
        first_kept += 1
