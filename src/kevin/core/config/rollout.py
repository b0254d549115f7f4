"""How a policy is sampled, searched with, scored, judged and reported on."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from kevin.core.history import HistoryConfig
from kevin.core.types import Settings


class RolloutConfig(Settings):
    num_trajectories: int = Field(default=4, ge=1)
    """m, per task."""
    num_turns: int = Field(default=4, ge=1)
    """n, per trajectory."""
    temperature: float = Field(default=0.9, ge=0)
    """0 takes the likeliest token."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; 1 is off."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Prompts are kept within this by leaving out the oldest turns. Like the two lengths below it follows from a
    policy's model when null, and a policy may have its own. The study's own model: 3/4 of ``base_model.max_tokens``,
    half of it with ``base_model.init``.
    Endpoints and recordings: 8192. Others: half of the model's context, at most 8192."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """A longer answer is cut off and counts as a parse error. When null, the study's own model: 1/8 of
    ``base_model.max_tokens``. Endpoints: 16384. Others: what the prompt leaves of the context, at most 16384."""
    max_feedback_chars: int | None = Field(default=None, ge=50)
    """Length of the evaluation message that a later turn sees. When null, the study's own model: 400. Endpoints: 4000.
    Others: as many characters as the prompt has tokens, at most 4000."""
    profile_feedback: bool = False
    """Tell the author of a correct kernel what share of the device's bandwidth and arithmetic it reaches, and on a GPU
    its registers and spills; with ``judge.profiler`` also its occupancy and what its warps wait for."""
    history: HistoryConfig = HistoryConfig()
    """What a later turn sees of those before it, in training and test."""
    feedback: Literal["own", "shuffled"] = "own"
    """``shuffled``: a control at test time, each kernel is told the evaluation of another one, of another task where
    there is one. What is then still gained over turns is gained by drawing again. Training is always told the truth."""


class RewardConfig(Settings):
    correctness_weight: float = Field(default=0.3, ge=0)
    """Score of a correct kernel beside its speedup."""
    speedup_cap: float | None = None
    """Upper limit of the speedup in the score; none when null."""
    gamma: float = Field(default=0.4, ge=0, le=1)
    """Discount of later turns' scores in a turn's return."""
    returns: Literal["sum", "max"] = "sum"
    """A return is the sum, or the largest, of the discounted rewards from its turn on."""
    progress_weight: float = Field(default=0.0, ge=0, le=1)
    """A later turn's reward is its score minus this times that of the kernel it started from: 0 is the paper, 1 rewards
    progress alone (Kernel-Smith); the bonus a of SCoRe is a / (1 + a)."""
    progress_over: Literal["last", "best"] = "last"
    """Which kernel a turn started from: that of the turn before, or the best so far."""
    progress_floor: float | None = None
    """The least of that; none when null. With a weight of 1 over the best and a floor of 0 the rewards of a trajectory
    add up to the score of its best kernel: what finds nothing better costs nothing, and a repetition earns nothing."""
    length_penalty: float = Field(default=0.0, ge=0)
    """What every 1,000 tokens of a turn's answer take off its reward, right or wrong; scores stay as they are. The
    paper tried a length penalty and dropped it."""


class PrimaryConfig(Settings):
    """The study's primary endpoint: of all its comparisons the one that is named before it is read. At equal kernels a
    task, the geometric mean speedup, with eager as the floor, of a policy's turns over that of another's first answers.
    """

    policy: str | None = None
    """Key of ``policies`` whose turns are asked about, with its further seeds; the first one trained over turns when
    null."""
    against: str | None = None
    """Key of ``policies`` whose first answers they are compared with; the first one of single-turn training when
    null."""
    trajectories: int = Field(default=4, ge=1)
    """Of a task."""
    turns: int = Field(default=8, ge=2)
    """Of each trajectory."""
    declared: bool = False
    """The endpoint was committed before any kernel of these results was judged; else tables call it retrospective."""


class ReportConfig(Settings):
    thresholds: ClassVar[tuple[float, ...]] = (0.0, 0.5, 1.0, 1.5, 2.0)
    """p of fast_p."""
    num_bootstrap: int = Field(default=2000, ge=100)
    """Resamples behind every interval."""
    timing_resolution: float = Field(default=0.01, ge=0, lt=1)
    """Share by which the judge's clock alone may set two speedups apart, two measurements of one kernel among them; a
    verdict on speedups needs more than that besides its interval."""
    primary: PrimaryConfig = PrimaryConfig()
    """The study's primary endpoint."""
    viewer_trajectories: ClassVar[int] = 2
    """Trajectories per task (the best ones first) that the report's viewer holds."""
    miniature: bool = False
    """The study is a rehearsal of its own steps, whose numbers mean nothing: tables, figures and the report say so, and
    no claim of the paper is measured by it."""


class JudgePoolConfig(Settings):
    """How judging is scheduled. Nothing here can change a verdict."""

    device_workers: int = Field(default=1, ge=1)
    """Devices that run kernels: sets of ``judge.num_threads`` cores, or GPUs (the visible ones in turn)."""
    gpus: tuple[int, ...] | None = Field(default=None, min_length=1)
    """Numbers, among the visible GPUs, of those that judge, in turn; the first ones when null. A judge with GPUs of its
    own can work ``while_generating``."""
    kernels_in_flight: int = Field(default=8, ge=1)
    """On a GPU: how many kernels' sandboxes are started or open at once, while one of them is measured."""
    isolation: Literal["auto", "apptainer", "bubblewrap", "namespaces", "none"] = "auto"
    """What closes candidates in. ``auto``: Apptainer with ``image`` where one is named, else the best that works."""
    image: str | None = None
    """Apptainer image for candidates and their compilers (``containers/judge.sif``); with ``isolation: apptainer`` and
    no image the host's own programs are bound into an empty one."""
    scheduler: str | None = None
    """Address of a running dask scheduler (a Slurm cluster, say); a local one is started when absent."""
    while_generating: Literal["auto", "always", "never"] = "auto"
    """Whether answers are judged while others are still being generated. ``auto``: where judge and model surely have
    devices of their own, i.e. with a ``scheduler``, or with an endpoint on another machine."""


class StrategyConfig(Settings):
    method: Literal["trajectories", "beam", "evolution"] = "trajectories"
    """``trajectories``: each by itself, as in training. ``beam``: after half of the turns only the quarter with the
    fastest kernels goes on, copied. ``evolution``: every prompt shows kernels of all the task's trajectories with
    their evaluations, drawn from the eight best so far (EvoEngineer, arXiv 2510.03760)."""
    rollout: dict[str, Any] = Field(default={})
    """Keys of ``rollout`` that differ. Of ``num_turns`` the number of trajectories follows: see ``num_kernels``."""
    num_parents: int = Field(default=3, ge=1)
    """``evolution`` only: kernels that a prompt shows, the best last; better ones are drawn more often."""


class SearchConfig(Settings):
    """Ways to spend the same number of kernels at test time, compared in ``tables/search.csv``."""

    num_kernels: int | None = Field(default=None, ge=1)
    """Kernels a task of every strategy; ``rollout.num_trajectories`` times ``rollout.num_turns`` when null."""
    strategies: dict[str, StrategyConfig] = Field(default={})
    """By a name of your choice."""
    compared: tuple[str, ...] | None = None
    """Those of them that the report compares too, by name: each is a further rollout of every compared policy. When
    null ``tables/search.csv`` compares all, and the report none."""

    @property
    def names(self) -> list[str]:
        """Of the strategies that are compared, in their order."""
        return list(self.compared or self.strategies)
