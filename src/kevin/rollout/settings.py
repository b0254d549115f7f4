"""What a rollout is, everything but the tasks, the policy and the judge; and what its turns took."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from pydantic import Field

from kevin.core.config import Study
from kevin.core.errors import HarnessError
from kevin.core.files import read_lines
from kevin.core.history import HistoryConfig
from kevin.core.types import Dialect, Frozen, Kernel, Language, Task, Turn, Verdict, digest
from kevin.policy.interface import Sampling

Judge = Callable[[Sequence[tuple[Task, Kernel]]], list[Verdict | HarnessError]]
"""Verdicts in the order of the pairs; a HarnessError where there is none."""


@runtime_checkable
class SharingJudge(Protocol):
    """A judge that can make way for, and work beside, a model on the same machine."""

    def __call__(self, pairs: Sequence[tuple[Task, Kernel]], /) -> list[Verdict | HarnessError]: ...

    def expect(self, tasks: Sequence[Task], dialect: Dialect, num_kernels: int) -> None:
        """What so many kernels for these tasks will be judged against, and in, may be made while they are written."""

    def build_ahead(self, task: Task, kernel: Kernel) -> None:
        """What is asked for later may be compiled now, where that takes nothing from whoever generates."""

    def all_written(self, pairs: Sequence[tuple[Task, Kernel]]) -> None:
        """What was expected has come: these kernels, which are judged next."""

    def made(self, key: str) -> bool:
        """Whether it worked out the verdict of this key itself, and did not know it."""

    def rest(self) -> None:
        """Between two batches: give back the memory that a model on the same device may need."""


Place = tuple[str, int]
"""Task id and trajectory."""
Histories = Mapping[Place, Sequence[Turn]]
"""What each trajectory has behind it; the order is the order of requests and results."""


class RolloutSettings(Frozen):
    dialect: Dialect
    language: Language
    num_trajectories: int = Field(ge=1)
    num_turns: int = Field(ge=1)
    temperature: float = Field(default=0.9, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_prompt_tokens: int = Field(ge=1)
    max_response_tokens: int = Field(ge=1)
    max_feedback_chars: int = Field(default=1200, ge=50)
    profile_feedback: bool = False
    history: HistoryConfig = HistoryConfig()
    feedback: Literal["own", "shuffled"] = "own"
    seed: int = Field(default=0, ge=0)

    @classmethod
    def from_study(cls, study: Study) -> RolloutSettings:
        """``study``: with every length a number, as `kevin.core.lengths.with_lengths` gives it."""
        return cls(
            dialect=study.dialect, language=study.language, seed=study.seed, **study.rollout.model_dump(mode="python")
        )

    def sampling(self, turn: int, tasks: Sequence[Task]) -> Sampling:
        """Of one turn; the seed follows from the settings' seed, the turn and the set of tasks."""
        seed = int(digest("turn", str(self.seed), str(turn), *sorted(t.id for t in tasks))[:8], 16)
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_response_tokens, seed=seed)

    def sampling_of(self, turn: int, sets: Sequence[Sequence[Task]]) -> Sampling:
        """Of several sets of tasks that are played together; each draws what it would draw by itself."""
        first, *others = (self.sampling(turn, tasks) for tasks in sets)
        if not others:
            return first
        seeds = {t.id: s.seed for s, tasks in zip((first, *others), sets, strict=True) for t in tasks}
        return first.model_copy(update={"seeds": seeds})


IDENTITY_DEFAULTS = {
    "rollout": RolloutSettings(
        dialect="c_abi", language="cpp", num_trajectories=1, num_turns=1, max_prompt_tokens=1, max_response_tokens=1
    ).model_dump(mode="json", include={"history", "feedback"})
}
"""Of settings that a rollout from before them was made without."""


def sum_seconds(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """By key, of all that have it."""
    total: dict[str, float] = {}
    for part in parts:
        for key, seconds in part.items():
            total[key] = total.get(key, 0.0) + seconds
    return total


class TurnTiming(Frozen):
    """Where the time of one turn of all trajectories went."""

    turn: int
    num_answers: int
    """Generated in this run; those of a checkpoint do not count."""
    num_kernels: int
    num_prompt_tokens: int
    num_completion_tokens: int
    generate_s: float
    judge_s: float
    """After the last answer."""
    device_s: float = 0.0
    """What checking and timing these kernels takes the device, also where the verdicts were known before."""
    num_new: int = 0
    """Verdicts that were worked out for this turn: no turn before it and no store had them."""
    stages_s: dict[str, float] = Field(default={})
    """Of the new verdicts, by stage: the seconds of all, which overlap where several are judged at once."""
    device_name: str | None = None
    """Of what the verdicts are of; None where the turn has none."""
    beside_s: float = 0.0
    """Of ``generate_s``: how long kernels were judged meanwhile."""
    share: float = 1.0
    """Of this in what several splits did together, by their numbers of tasks."""
    total_s: float
    """Wall time of the turn; what is not generating or judging is our own overhead."""


def turn_seconds(timing_path: Path, num_turns: int) -> list[float]:
    """Seconds of each turn of all trajectories: generating answers, and checking and timing their kernels.

    A kernel whose verdict was known counts as if it had been judged again; compiling, which needs no such device, does
    not count, nor do answers that a killed run did not finish.

    Args:
        timing_path: timing.jsonl of the rollout, a `TurnTiming` a line; more than one for a turn that was resumed.
    """
    seconds = [0.0] * num_turns
    for timing in read_lines(timing_path, TurnTiming.model_validate_json, "delete it"):
        if timing.turn <= num_turns:
            seconds[timing.turn - 1] += timing.share * (timing.generate_s + timing.device_s)
    return seconds


def judging_devices(timing_path: Path) -> list[str]:
    """Names of what judged a rollout's kernels: of several where it was resumed on another machine."""
    names = (timing.device_name for timing in read_lines(timing_path, TurnTiming.model_validate_json, "delete it"))
    return list(dict.fromkeys(name for name in names if name is not None))
