"""What a judge might have said about a kernel, made up from its plan alone: transcripts are written without judging.

A correct kernel's speedup follows from its decisions by a law that is drawn anew for each transcript: within one, a
kernel that is given again is as fast as before, and over all of them none shows what is good.
"""

from __future__ import annotations

import math
import random
import re

from kevin.core.dialogue import feedback
from kevin.core.texts import split_lines
from kevin.core.types import Outcome, Task
from kevin.writer.plan import COMPILE_ERRORS, Plan

_SPEEDUPS = (0.05, 4.0)
_EFFECT = 0.5
"""Standard deviation of the logarithm of what one decision does to the speed."""
_MATH_NAME = re.compile(r"\b(\w+)\(")
_MATH_NAMES = ("exp", "tanh", "erf", "log1p", "log", "expm1", "fabs", "sqrt")


class SpeedLaw:
    """The speed of a plan: a product of random factors, one for each decision that it takes."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = random.Random(rng.random())
        low, high = (math.log(s) for s in _SPEEDUPS)
        self._log_speed = self._rng.uniform(low, high)
        self._effects: dict[tuple[str, str], float] = {}

    def speedup(self, plan: Plan) -> float:
        """Over eager PyTorch; the same for the same decisions."""
        for decision in plan.slots:
            if decision not in self._effects:
                self._effects[decision] = self._rng.gauss(0, _EFFECT)
        return math.exp(self._log_speed + sum(self._effects[decision] for decision in plan.slots))


def made_up_feedback(
    rng: random.Random, task: Task, plan: Plan, right: str, source: str, law: SpeedLaw
) -> tuple[Outcome, str]:
    """Outcome and feedback text for ``source``, the kernel of ``plan``; ``right`` is the same without the mistake.

    Of several mistakes the first is spoken of.
    """
    if not plan.mistakes:
        return Outcome.CORRECT, feedback(Outcome.CORRECT, "", law.speedup(plan))
    if plan.mistakes[0] in COMPILE_ERRORS:
        said = _said_by_nvcc if plan.language == "cuda" else _said_by_gcc
        message = said(plan, split_lines(right), split_lines(source))
        return Outcome.COMPILE_ERROR, feedback(Outcome.COMPILE_ERROR, message, None)
    return Outcome.INCORRECT, feedback(Outcome.INCORRECT, _mismatch(rng, task), None)


def _first_difference(right: list[str], wrong: list[str]) -> tuple[int, str]:
    """Number and text of the first line that is not as it should be."""
    pairs = zip(right, [*wrong, ""], strict=False)
    return next(((i, w) for i, (r, w) in enumerate(pairs, 1) if r != w), (1, wrong[0]))


def _said_by_nvcc(plan: Plan, right: list[str], wrong: list[str]) -> str:
    """The first errors in nvcc's words."""
    number, line = _first_difference(right, wrong)
    if plan.mistakes[0] == "undeclared_name":
        return _nvcc_error(number, line, line.find("num"), 'identifier "num" is undefined')
    if plan.mistakes[0] == "missing_semicolon":  # found out at the next token
        after = wrong[number] if number < len(wrong) else ""
        return _nvcc_error(number + 1, after, len(after) - len(after.lstrip()), 'expected a ";"')
    text = 'more than one instance of overloaded function "launch" has "C" linkage'
    errors = [_nvcc_error(number, line, line.find("launch"), text)]
    name = re.split(r"double\* ", line)[-1].split(",")[0]
    text = 'argument of type "const double *" is incompatible with parameter of type "const float *"'
    for call, source in enumerate(wrong[number:], number + 1):
        if re.search(rf">>>\({name}[,)]", source):
            errors.append(_nvcc_error(call, source, source.find(">>>(") + 4, text))
    return "\n\n".join(errors)


def _nvcc_error(number: int, line: str, column: int, text: str) -> str:
    return f"kernel.cu({number}): error: {text}\n  {line}\n  {' ' * column}^"


def _said_by_gcc(plan: Plan, right: list[str], wrong: list[str]) -> str:
    """The first error in g++'s words."""
    number, line = _first_difference(right, wrong)
    if plan.mistakes[0] == "missing_include":
        calls = ((i, s, m) for i, s in enumerate(wrong, 1) for m in _MATH_NAME.finditer(s) if m.group(1) in _MATH_NAMES)
        number, line, call = next(calls)
        column, name = call.start() + 1, call.group(1)
        text = f"'{name}' was not declared in this scope"
    elif plan.mistakes[0] == "undeclared_name":
        column, name = line.find("num;") + 1, "num"
        text = "'num' was not declared in this scope"
    elif plan.mistakes[0] == "missing_semicolon":
        column, name = len(line) + 1, "^"
        text = "expected ';' before '}' token"
    else:
        column, name = line.find("launch") + 1, "launch"
        text = "conflicting declaration of C function 'void launch(const double*"
    marks = f"      | {' ' * (column - 1)}^{'~' * (len(name) - 1)}"
    return f"kernel.cpp:{number}:{column}: error: {text}\n{number:5d} | {line}\n{marks}"


def _mismatch(rng: random.Random, task: Task) -> str:
    """A wrong result in the words of `kevin.judge.correctness.compare`."""
    assert task.spec is not None
    out = task.spec.outputs[0]
    index = f"[{', '.join(str(rng.randrange(d)) for d in out.shape)}]" if out.shape else ""
    bad = rng.randint(1, out.num_elements)
    where = f"{bad} of {out.num_elements} elements ({100 * bad / out.num_elements:.2g} %) are wrong"
    if rng.random() < 0.5:
        where = "every element is wrong" if out.shape else "the value is wrong"
    return f"out: {where}; out{index} is {rng.gauss(0, 1):.6g}, expected {rng.gauss(0, 1):.6g}"
