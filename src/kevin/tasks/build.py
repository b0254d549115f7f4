"""The study's tasks: which are trained on, which are held out; the same for the same configuration."""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from kevin.core.config import Study
from kevin.core.errors import ConfigError, DataError, TaskError, UsageError
from kevin.core.files import write_text
from kevin.core.texts import read_text
from kevin.core.types import Task
from kevin.tasks.catalog import Size, catalog
from kevin.tasks.compose import compose
from kevin.tasks.filters import check_task
from kevin.tasks.format import SpecError, inspect_task
from kevin.tasks.kernelbench import (
    TRAINED_LEVELS,
    find_tasks,
    is_kernelbench,
    load_kernelbench,
    named_sequence,
    set_digest,
    split,
    task_paths,
)
from kevin.tasks.ops import sequence

log = logging.getLogger(__name__)

_SPARE = 5
"""For each task wanted this many are composed at most: the filters turn some down."""


def build_tasks(study: Study) -> list[tuple[Task, str]]:
    """Every task of the study with its split: ``train``, ``level1``, ``level2`` (held out), each with its spec.

    From the catalog: single operators and composed ones; what is held out shares no operator sequence with what is
    trained on. From KernelBench: its own tasks split by seed, and ``num_eval_level2`` composed ones as ``unseen``. From
    a folder in its layout: that folder's alone, or beside the catalog's, split by seed or as they are named.

    Raises:
        ConfigError: more tasks are asked for than there are, or the case study is not among them.
        DataError, TaskError: KernelBench cannot be had, or a reference does not load.
    """
    if study.tasks.source == "kernelbench":
        return _from_kernelbench(study)
    added = _from_folder(study) if study.tasks.source == "both" else []
    held_out = _held_out(study)
    train = [*_level1(study)[1], *_train_level2(study, held_out)]
    return [*((t, "train") for t in train), *((t, f"level{t.level}") for t in held_out), *added]


def evaluated_tasks(study: Study) -> list[Task]:
    """Held-out tasks with their specs, the study's own and KernelBench's: of a user's no operators are known.

    Raises:
        ConfigError, DataError, TaskError: as `build_tasks`.
    """
    if study.tasks.source != "kernelbench":
        return _held_out(study)
    if not is_kernelbench(study.tasks.kernelbench):
        return []
    tasks = load_kernelbench(study.tasks.kernelbench)
    held_out = [pair for pair in _split(tasks, study) if pair[1] != "train"]
    return [*(t for t, _ in _usable(held_out, study)), *_new(study, tasks)]


def composed_tasks(
    num: int,
    seed: int,
    size: Size,
    *,
    exclude: Collection[tuple[str, ...]] = frozenset(),
    num_threads: int = 1,
) -> list[Task]:
    """``num`` level-2 tasks that pass every quality filter; what is turned down is logged with its reason.

    Tasks of GPU size are checked at their CPU size: the operators, and so the flaws, are the same.

    Raises:
        TaskError: the filters left fewer than ``num``.
    """
    attempts = _SPARE * num
    accepted: list[Task] = []
    pairs = zip(compose(attempts, seed, size, exclude), compose(attempts, seed, "cpu", exclude), strict=True)
    for wanted, checked in pairs:
        if rejection := check_task(checked, num_threads=num_threads):
            log.info("%s turned down: %s: %s", rejection.task_id, rejection.reason, rejection.message)
            continue
        accepted.append(wanted)
        if len(accepted) == num:
            break
    if len(accepted) < num:
        raise TaskError(f"only {len(accepted)} of {num} composed tasks pass the quality filters; ask for fewer")
    return accepted


# --- own tasks --------------------------------------------------------------------------------------------------


def _level1(study: Study) -> tuple[list[Task], list[Task]]:
    """Held-out and training tasks of level 1. The case study is the first that is held out."""
    config = study.tasks
    tasks = {t.id: t for t in catalog(study.task_size)}
    is_of_a_folder = config.source == "both" and config.case_study.startswith("kb/")
    if config.case_study not in tasks and not is_of_a_folder:
        raise ConfigError(f"tasks.case_study {config.case_study!r} is not in the catalog: {', '.join(tasks)}")
    if config.num_train + config.num_eval_level1 > len(tasks):
        raise ConfigError(
            f"tasks.num_train + num_eval_level1 is {config.num_train + config.num_eval_level1}, "
            f"the catalog has {len(tasks)} tasks"
        )
    case = [] if is_of_a_folder else [tasks.pop(config.case_study)]
    others = list(tasks.values())
    random.Random(f"kevin level 1, seed {study.seed}").shuffle(others)
    held_out = [*case, *others][: config.num_eval_level1]
    train = others[len(others) - config.num_train :]  # from the end: each number leaves the other's alone
    return held_out, train


def _held_out(study: Study) -> list[Task]:
    return [*_level1(study)[0], *_unseen(study)]


def _unseen(study: Study, exclude: frozenset[tuple[str, ...]] = frozenset()) -> list[Task]:
    """Composed tasks of the evaluation; drawn first, so that they do not depend on how many are trained on."""
    frozen = _frozen(study)
    return composed_tasks(
        study.tasks.num_eval_level2,
        2 * (frozen.seed if frozen else study.seed) + 1,
        study.task_size,
        exclude=exclude,
        num_threads=study.judge.num_threads,
    )


def _train_level2(study: Study, held_out: Sequence[Task]) -> list[Task]:
    return composed_tasks(
        study.tasks.num_train,
        2 * study.seed,
        study.task_size,
        exclude=frozenset(sequence(t.ops) for t in held_out),
        num_threads=study.judge.num_threads,
    )


# --- KernelBench ------------------------------------------------------------------------------------------------


def _from_kernelbench(study: Study) -> list[tuple[Task, str]]:
    source = study.tasks.kernelbench
    tasks = load_kernelbench(source)
    case = study.tasks.case_study
    if case not in {t.id for t in tasks}:
        raise ConfigError(f"tasks.case_study {case!r} is not a task of KernelBench; ids are kb/<level>/<number>")
    usable = _usable(_split(tasks, study), study)
    if case not in {t.id for t, _ in usable}:
        raise ConfigError(f"tasks.case_study {case!r} cannot be used, as said above; choose another")
    for level in source.levels:
        if f"level{level}" not in {part for _, part in usable}:
            raise ConfigError(
                f"tasks.kernelbench.levels: no held-out task of level {level} can be used with dialect "
                f"{study.dialect}; take the level out, or set dialect: load_inline"
            )
    pairs = [*usable, *((t, "unseen") for t in _new(study, tasks))]
    if frozen := _frozen(study):
        frozen.check(pairs)
    return pairs


def _frozen(study: Study) -> FrozenTasks | None:
    return read_frozen(Path(study.tasks.frozen)) if study.tasks.frozen else None


def _from_folder(study: Study) -> list[tuple[Task, str]]:
    source = study.tasks.kernelbench
    if is_kernelbench(source):
        raise ConfigError(
            "tasks.source both puts a folder of yours beside the study's own tasks: name it by tasks.kernelbench.path. "
            "KernelBench's own tasks are like the study's, some of which are held out"
        )
    tasks = load_kernelbench(source)
    case = study.tasks.case_study
    if case.startswith("kb/") and case not in {t.id for t in tasks}:
        raise ConfigError(f"tasks.case_study {case!r} is not a task of {source.path}; ids are kb/<level>/<number>")
    return _usable(_split(tasks, study), study)


def _split(tasks: Sequence[Task], study: Study) -> list[tuple[Task, str]]:
    """As `split`, or held out as they are named. Raises ConfigError for a name that no task, or several, have."""
    source, case, frozen = study.tasks.kernelbench, study.tasks.case_study, _frozen(study)
    named = tuple(frozen.of_kernelbench) if frozen else source.held_out
    if not named:
        return split(tasks, source.num_train_per_level, study.seed, held_out=(case,))
    held_out = find_tasks(named, tasks) | {t.id for t in tasks if t.level not in TRAINED_LEVELS}
    if case in {t.id for t in tasks} - held_out:
        raise ConfigError(f"tasks.case_study {case!r} is trained on: put it into tasks.kernelbench.held_out, too")
    if empty := {t.level for t in tasks} - {t.level for t in tasks if t.id in held_out}:
        raise ConfigError(
            f"tasks.kernelbench.held_out names no task of level {min(empty)}; name one, or take the level out of "
            f"tasks.kernelbench.levels"
        )
    return [(t, f"level{t.level}" if t.id in held_out else "train") for t in tasks]


def _new(study: Study, tasks: Sequence[Task]) -> list[Task]:
    """Composed tasks beside KernelBench's own: where a folder is the user's, its tasks are all that is asked for."""
    if not is_kernelbench(study.tasks.kernelbench):
        return []
    return _unseen(study, frozenset(named_sequence(t.name) for t in tasks))


def _usable(pairs: Sequence[tuple[Task, str]], study: Study) -> list[tuple[Task, str]]:
    """The tasks with their specs, in their splits.

    A reference of the user's own that does not work is refused. KernelBench's are not the user's to repair, and some
    need packages that are not installed: they are kept without a spec where the dialect needs none, else left out.
    """
    source = study.tasks.kernelbench
    paths, foreign = task_paths(source), is_kernelbench(source)
    usable: list[tuple[Task, str]] = []
    broken: list[str] = []
    for task, part in pairs:
        try:
            spec = inspect_task(task.source, str(paths.get(task.id, task.id)))
            usable.append((task.model_copy(update={"spec": spec}), part))
        except TaskError as e:
            if study.dialect == "load_inline" and (foreign or isinstance(e, SpecError)):
                log.warning("%s carries no spec, so only the load_inline dialect can use it: %s", task.id, e)
                usable.append((task, part))
            else:
                broken.append(str(e))
    listed = "".join(f"\n  {line}" for line in broken)
    if broken and not foreign:
        raise TaskError(
            f"{len(broken)} of {len(pairs)} tasks cannot be used; repair the files or take them out of the folder:"
            f"{listed}"
        )
    if broken:
        log.warning(
            "%d of %d tasks are left out: the c_abi dialect cannot use them:%s", len(broken), len(pairs), listed
        )
    return usable


# --- held-out tasks that were chosen once: a readable file, written beside the tasks of a study ------------------

Parts = dict[str, dict[str, str]]
"""By split and id a task's name, with the first digits of its digest."""


def write_split(path: Path, tasks: Sequence[tuple[Task, str]], seed: int) -> None:
    """For each part its tasks with names and digests."""
    content = {"seed": seed, "set": set_digest(t for t, _ in tasks), "parts": _parts(tasks)}
    write_text(path, yaml.safe_dump(content, sort_keys=False, width=120))


def _parts(tasks: Iterable[tuple[Task, str]]) -> Parts:
    parts: Parts = {}
    for task, part in tasks:
        parts.setdefault(part, {})[task.id] = f"{task.name} {task.digest[:16]}"
    return parts


class FrozenTasks(NamedTuple):
    """Held-out tasks that were chosen once."""

    path: Path
    seed: int
    """Of which the new fused ones among them are drawn."""
    parts: Parts

    @property
    def of_kernelbench(self) -> set[str]:
        """Their ids."""
        return {task_id for own in self.parts.values() for task_id in own if task_id.startswith("kb/")}

    def check(self, tasks: Iterable[tuple[Task, str]]) -> None:
        """Raises DataError where the held-out ones of these are not those that were frozen."""
        now = _parts((task, part) for task, part in tasks if part != "train")
        for part in sorted(now.keys() | self.parts.keys()):
            before, found = self.parts.get(part, {}), now.get(part, {})
            for task_id in sorted(before.keys() | found.keys()):
                if before.get(task_id) != found.get(task_id):
                    raise DataError(
                        f"{self.path}: {part}: {task_id} was frozen as {before.get(task_id, 'none')}, and is "
                        f"{found.get(task_id, 'not there')}; take the code and the KernelBench that it was frozen with"
                    )


def read_frozen(path: Path) -> FrozenTasks:
    """A file in the form of `write_split`. Raises ConfigError where it cannot be read as one."""
    try:
        raw = yaml.safe_load(read_text(path))
        parts = {str(part): {str(i): str(told) for i, told in own.items()} for part, own in raw["parts"].items()}
        return FrozenTasks(path, int(raw["seed"]), parts)
    except UsageError as e:
        raise ConfigError(f"tasks.frozen: {e}") from None
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(f"tasks.frozen: {path} has no seed and parts, as a split.yaml has") from None
