"""Files in, files out: rollouts of one policy, as a rule of the workflow runs them."""

from __future__ import annotations

import functools
import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kevin.core import files
from kevin.core.config import PolicyConfig, Study
from kevin.core.errors import ConfigError, HarnessError
from kevin.core.identity import STEP_VERSIONS
from kevin.core.lengths import check_context, with_lengths
from kevin.core.progress import Progress
from kevin.core.provenance import jobs_side_by_side, provenance
from kevin.core.types import Dialect, Kernel, Task, Turn, Verdict
from kevin.policy.interface import Policy
from kevin.policy.load import load_policy, policy_identity
from kevin.rollout.beside import judges_beside
from kevin.rollout.checkpoint import keep, restore
from kevin.rollout.refine import refine, rollout_identity
from kevin.rollout.search import Trajectories, make_search
from kevin.rollout.settings import RolloutSettings, TurnTiming, judging_devices, turn_seconds

if TYPE_CHECKING:
    from kevin.judge.pool.judge_pool import JudgePool

logger = logging.getLogger(__name__)

MAX_UNJUDGED_SHARE = 0.05
"""Of trajectories that the harness failed on; a file with more of them is not written."""


def run_rollouts(
    study: Study,
    policy_name: str,
    places: Sequence[tuple[str | None, Path]],
    tasks_path: Path,
    *,
    strategy: str | None = None,
    store: Path | None = None,
) -> None:
    """Roll out policy ``policy_name`` on splits of ``tasks_path``, with one engine and one judge.

    An engine that batches by itself plays all splits together, each with the answers that it would have alone;
    transformers, which works off one small batch after the other, plays them in turn.

    ``strategy``: a key of ``search.strategies``; as ``rollout`` says when absent. A file's metadata say what each
    turn took of the device (``turn_seconds``, see `kevin.rollout.settings`), and which devices judged (``judged_on``).

    Beside it: ``finished/``, from which the same rollout is taken again; ``timing.jsonl``, one line per turn that was
    worked on; and until all is done ``checkpoint/``, from which a killed run goes on. Answers that ran into the limit
    are counted in a message. Trajectories that the harness failed on are tried once more at the end. Verdicts are
    looked up in and added to ``store`` (default: the study's own).

    Args:
        places: a split, all tasks for None, and the file that its turns are written to.

    Raises:
        ConfigError: no such policy or strategy.
        HarnessError: over `MAX_UNJUDGED_SHARE` of a split's trajectories still have no verdict. Splits before it are
            written.
        KevinError: as `refine` and `load_policy`.
    """
    config = study.policies.get(policy_name)
    if config is None:
        raise ConfigError(f"no policy {policy_name!r} in the configuration; there are {', '.join(study.policies)}")
    own_study = study.for_strategy(policy_name, strategy) if strategy else study.for_policy(policy_name)
    own_study = with_lengths(own_study, policy_name, fetch=True)
    check_context(own_study, policy_name)
    settings = RolloutSettings.from_study(own_study)
    own = {
        "version": STEP_VERSIONS["rollout"],
        "policies": {policy_name: policy_identity(config)},
        "judge": study.judge.identity,
    }
    beside = judges_beside(study.pool, config)
    with ExitStack() as opened:

        @functools.cache
        def judge_and_policy() -> tuple[PoolJudge, Policy]:
            judge = opened.enter_context(open_judge(study, store, show_progress=not beside))
            return judge, opened.enter_context(closing(load_policy(policy_name, config)))

        search = make_search(study.search.strategies[strategy], settings) if strategy else Trajectories()
        splits = [_Split(split, out, files.read_tasks(tasks_path, split)) for split, out in places]

        def identity(split: _Split) -> dict[str, Any]:
            return rollout_identity(split.tasks, policy_name, settings, search, own)

        left = [split for split in splits if not restore(split.out, identity(split))]
        for group in _groups(left, config, settings):
            judge, policy = judge_and_policy()
            for split in group:
                if not split.checkpoint.exists():
                    split.timing.unlink(missing_ok=True)
            for _ in range(2):
                turns = refine(
                    [task for split in group for task in split.tasks],
                    policy,
                    judge,
                    settings,
                    [split.checkpoint for split in group],
                    identity=own,
                    on_timing=functools.partial(_save_timing, group),
                    beside=beside,
                    search=search,
                    sets=[split.tasks for split in group],
                )
                if not _unjudged(turns):
                    break
            for split in group:
                ids = {task.id for task in split.tasks}
                found = [turn for turn in turns if turn.task_id in ids]
                facts = {
                    "strategy": strategy,
                    "turn_seconds": turn_seconds(split.timing, settings.num_turns),
                    "judged_on": judging_devices(split.timing),
                }
                write_results(split.out, found, study, policy=policy_name, split=split.name or "all", **facts)
                _tell_cut(found, policy_name, settings.max_response_tokens)
                if not _unjudged(found):
                    keep(split.out, identity(split))
                    shutil.rmtree(split.checkpoint, ignore_errors=True)


class _Split(NamedTuple):
    name: str | None
    out: Path
    tasks: list[Task]

    @property
    def checkpoint(self) -> Path:
        return self.out.parent / "checkpoint"

    @property
    def timing(self) -> Path:
        return self.out.parent / "timing.jsonl"


def _groups(left: list[_Split], config: PolicyConfig, settings: RolloutSettings) -> list[list[_Split]]:
    """What is played together. What is told of other tasks' kernels is of the same split."""
    together = config.backend != "transformers" and settings.feedback == "own"
    return [left] if together and left else [[split] for split in left]


def _save_timing(group: Sequence[_Split], timing: TurnTiming) -> None:
    num_tasks = sum(len(split.tasks) for split in group)
    for split in group:
        own = timing.model_copy(update={"share": len(split.tasks) / num_tasks})
        files.append_line(split.timing, own.model_dump_json())


def write_results(
    out_path: Path, turns: Sequence[Turn], study: Study, *, policy: str, split: str, **facts: Any
) -> None:
    """Write turns.parquet, with facts in its metadata, unless too much of it has no verdict (HarnessError)."""
    unjudged = _unjudged(turns)
    num_trajectories = len({(t.task_id, t.trajectory) for t in turns})
    if unjudged:
        message = f"{len(unjudged)} of {num_trajectories} trajectories of {policy} on {split} have no verdict"
        first = f"first: {unjudged[0].task_id}, trajectory {unjudged[0].trajectory}, {unjudged[0].reason}"
        if len(unjudged) > MAX_UNJUDGED_SHARE * num_trajectories:
            raise HarnessError(f"{message} ({first}); see the log, then run again: all that was judged is kept")
        logger.warning("%s (%s): they are left out of every average", message, first)
    record = provenance(study.digest, policy=policy, split=split, num_unjudged=len(unjudged), **facts)
    files.write_turns(out_path, turns, record)


def _tell_cut(turns: Sequence[Turn], policy: str, max_tokens: int) -> None:
    """Say how many answers ran into the limit: they hold no kernel, whatever the model would have written."""
    num_cut = sum(t.finish_reason == "length" for t in turns)
    if not num_cut:
        return
    most = 2 * num_cut > len(turns)
    logger.log(
        logging.ERROR if most else logging.WARNING,
        "%s%d of %d answers of %s were cut off at %d tokens and count as parse errors; raise "
        "policies.%s.max_response_tokens if its answers are longer%s",
        "MOST ANSWERS ARE CUT OFF: " if most else "",
        num_cut,
        len(turns),
        policy,
        max_tokens,
        policy,
        ". These numbers tell of the limit, not of the model" if most else "",
    )


class PoolJudge:
    """A judge pool as the loop's judge. It makes room for a model and works beside it on a GPU alone: a CPU's cores may
    be generating, and its memory is not scarce."""

    def __init__(self, pool: JudgePool, show_progress: bool) -> None:
        self._pool, self._show_progress = pool, show_progress
        self._shares = pool.protocol.device == "cuda"
        self._made: set[str] = set()

    @property
    def device_name(self) -> str:
        """What verdicts are of."""
        return self._pool.device_name

    def __call__(self, pairs: Sequence[tuple[Task, Kernel]]) -> list[Verdict | HarnessError]:
        if not self._show_progress:
            return self._pool.judge(pairs, on_new=self._keep)
        bar = Progress(len(pairs), "judge", "kernels")
        with bar:
            return self._pool.judge(pairs, on_verdict=lambda *_: bar.update(), on_new=self._keep)

    def _keep(self, verdict: Verdict) -> None:
        self._made.add(verdict.key)

    def expect(self, tasks: Sequence[Task], dialect: Dialect, num_kernels: int) -> None:
        if self._shares:
            self._pool.expect(tasks, dialect, num_kernels)

    def build_ahead(self, task: Task, kernel: Kernel) -> None:
        if self._shares:
            self._pool.build_ahead(task, kernel)

    def all_written(self, pairs: Sequence[tuple[Task, Kernel]]) -> None:
        if self._shares:
            self._pool.all_written(pairs)

    def made(self, key: str) -> bool:
        """Whether the store did not have this verdict."""
        return key in self._made

    def rest(self) -> None:
        if self._shares:
            self._pool.rest()


@contextmanager
def open_judge(study: Study, store: Path | None, show_progress: bool) -> Iterator[PoolJudge]:
    """The study's judge pool, with a progress bar around every call. ``store``: by default the study's own.

    On a CPU its workers start at once, beside the import of a model; on a GPU the model takes its memory first. Where
    other jobs judge on the same CPU, this thread leaves its device to them.
    """
    from kevin.judge.pool.judge_pool import JudgePool
    from kevin.judge.pool.worker import staying_off

    folder = (store or Path(study.results) / "store").resolve()  # workers have another working directory
    with JudgePool(study.judge, folder, study.pool) as pool:
        if study.judge.device == "cpu":
            pool.warm_up()
        with staying_off(pool.device_cores) if jobs_side_by_side() > 1 else nullcontext():
            yield PoolJudge(pool, show_progress)


def _unjudged(turns: Sequence[Turn]) -> list[Turn]:
    return [t for t in turns if t.outcome is None]
