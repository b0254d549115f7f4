"""Task and past turns -> conversation; completion -> kernel. The same templates serve training and test.

Chains of thought are dropped, every earlier kernel and summary is kept with its evaluation, in order; when the token
budget is short the oldest turns go first (arXiv 2507.11948, section 3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args

from kevin.core import abi
from kevin.core.candidate import guess_dialect
from kevin.core.errors import TaskError
from kevin.core.fences import THINK_OPEN, Block, fenced, read_answer
from kevin.core.texts import digits
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
    num_candidates: int = 0
    """Code blocks that could be the kernel; the last one is."""


_LANGUAGES: dict[Dialect, re.Pattern[str]] = {
    "c_abi": re.compile(r"(?:.*[./])?(?:c|cc|cpp|cxx|c\+\+|h|hpp|cu|cuh|cuda(?:[-_/]?c(?:pp|\+\+)?)?|hip)\d*"),
    "load_inline": re.compile(r"(?:.*[./])?(?:py|python|ipython|pytorch|torch)[\d.]*"),
}
"""What the opening fence of a dialect's kernel says."""
_ENTRIES: dict[Dialect, tuple[re.Pattern[str], ...]] = {
    "c_abi": (
        re.compile(r'extern\s*"C"'),
        re.compile(rf"\b{abi.LAUNCHER}\s*\((?:[^(){{}}]|\([^(){{}}]*\))*\)[^;(){{}}]*\{{"),
    ),
    "load_inline": (re.compile(r"^[ \t]*class\s+ModelNew\b", re.MULTILINE),),
}
"""What stands, one after the other, in a text that defines what a dialect's kernel must: a header or a test program
declares and calls it alone.
"""


def parse_completion(text: str, dialect: Dialect | Literal["auto"], language: Language) -> Parsed:
    """Drop the chain of thought, take the last complete code block that can be a kernel, and the summary after it.

    A block that defines what a kernel must define comes before one that only says its language; one that says another
    language and defines nothing is none. ``auto``: the dialect of the block that fits best.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff\u200b")
    answer = read_answer(text)
    dialects: tuple[Dialect, ...] = get_args(Dialect) if dialect == "auto" else (dialect,)
    ranked = [
        (rank, place, guess_dialect(block.code, "", "auto") == d, d)
        for place, block in enumerate(answer.blocks)
        for d in dialects
        if (rank := _rank(block, d)) is not None
    ]
    if not ranked:
        problem = _problem(answer.blocks, answer.cut, "Python" if dialect == "load_inline" else "C++ or CUDA")
        return Parsed(kernel=None, summary="", problem=problem)
    _, place, _, chosen = max(ranked)
    block = answer.blocks[place]
    said = text[block.end :].partition(SUMMARY)[2].lstrip("*").strip().split("\n")[0].strip("* ")
    kernel = Kernel(dialect=chosen, language=language, source=block.code)
    return Parsed(kernel=kernel, summary=said, num_candidates=len({at for _, at, _, _ in ranked}))


def _rank(block: Block, dialect: Dialect) -> int | None:
    """How surely a block is a kernel; None where it cannot be one."""
    if not block.code.strip():
        return None
    said = re.split(r"[\s{}:,]", block.info.lower().lstrip("{. ").removeprefix("language-"), maxsplit=1)[0]
    fits = _LANGUAGES[dialect].fullmatch(said) is not None
    if _defines(block.code, dialect):
        return 3 if fits or not said else 1
    return 2 if fits else None if said else 0


def _defines(code: str, dialect: Dialect) -> bool:
    position = 0
    for part in _ENTRIES[dialect]:
        if (found := part.search(code, position)) is None:
            return False
        position = found.end()
    return True


def _problem(blocks: Sequence[Block], cut: str | None, wanted: str) -> str:
    if cut == "thought":
        return "the chain of thought was never closed"
    if cut == "block":
        return "the answer ends inside a code block"
    if not blocks:
        return "the answer holds no code block"
    if all(not block.code.strip() for block in blocks):
        return "the code block is empty"
    said = ", ".join(dict.fromkeys(block.info.split()[0] for block in blocks if block.info))
    return f"no code block of the answer is a kernel in {wanted}: they are in {said}"


def opening_is_expected(text: str) -> bool:
    """Whether the chain of thought opens as the base model's do: one minus its mean is the Not-Okay ratio."""
    return text.removeprefix(THINK_OPEN).lstrip().startswith("Okay,")


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
        return f"Correct, {digits(speedup, 2)}x the speed of PyTorch. It can be faster."
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


def past_answer(turn: Turn | Parsed, fence: str) -> str:
    """What a later turn sees of an earlier answer: kernel and summary, never the chain of thought."""
    if turn.kernel is None:
        return "(no code)"
    summary = f"\n{SUMMARY} {turn.summary}" if turn.summary else ""
    return fenced(turn.kernel.source, fence) + summary


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
