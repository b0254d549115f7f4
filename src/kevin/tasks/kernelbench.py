"""KernelBench's own tasks: from a checkout or from git at a pinned commit, checksummed, flagged and split."""

from __future__ import annotations

import itertools
import logging
import os
import random
import re
import shutil
import subprocess
import tempfile
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from kevin.core.config import KernelBenchSource
from kevin.core.errors import ConfigError, DataError, UsageError
from kevin.core.identity import content_digests
from kevin.core.texts import read_text
from kevin.core.types import Task, digest

log = logging.getLogger(__name__)

_FLAWED: dict[str, dict[int, tuple[int, ...]]] = {
    "constant_output": {2: (9, 23, 80, 83)},
    "zeros_pass": {1: (23, 37)},
    "zeros_pass_at_1e-2": {1: (39, 53), 2: (66,)},
    "reduction_skippable": {1: (24, 38, 39)},
    "closed_form": {1: (94, 96, 100)},
    "targets_cast_to_float": {1: (95,)},
    "not_deterministic": {2: (66,)},
}
"""Known flaws by level and number, for the sizes since version 0.1."""

_PINNED_LEVELS = {
    "423217d9fda91e0c2d67e4a43bf62f96f6d104f1": {
        1: "f0b8fce8fb09261d360b4e8b81ef04bcfb713a23dcab9ba925fc20583b68628b",
        2: "8fd813aa6d6a1d225ccc2dbf3798dff19114d5ae37bc8e13f7937733a50b0920",
        3: "2139940c6a1c96dd547ec61e70fd1ed5413caef49455c0c16ce2f5f175566ebf",
        4: "d8c9c5fd1a52e418d2c34d83701fb8e29b74821bf9d37a869c31a3acf5a5d3da",
    }
}
"""Digest of each level at commits that were looked at."""

TRAINED_LEVELS = (1, 2)
"""What the others are for is evaluation alone."""

_FILE = re.compile(r"(\d+)_(.+)\.py")
_GIT_TIMEOUT_S = 600
CACHE = Path("~/.cache/kevin/kernelbench")


def flaws(level: int, number: int) -> tuple[str, ...]:
    """Known flaws of a task; see the module's table."""
    return tuple(flaw for flaw, levels in _FLAWED.items() if number in levels.get(level, ()))


def load_kernelbench(source: KernelBenchSource, *, cache_dir: Path = CACHE) -> list[Task]:
    """The tasks of the wanted levels, ids ``kb/<level>/<number>``, in order of level and number, without specs.

    Args:
        cache_dir: where git checkouts are kept, one folder a commit.

    Raises:
        DataError: no such folder, an empty level or no network.
    """
    folder = _own_folder(source) or fetch(source.repository, source.commit, cache_dir)
    tasks = load_folder(folder, source.levels)
    for level, known in _PINNED_LEVELS.get(source.commit, {}).items() if is_kernelbench(source) else ():
        if level in source.levels and known != set_digest(t for t in tasks if t.level == level):
            log.warning("%s: level %d is not that of commit %s", folder, level, source.commit[:12])
    return tasks


def load_folder(folder: Path, levels: Sequence[int]) -> list[Task]:
    """Tasks of a checkout, or of its ``KernelBench`` folder, or of any folder with ``level<n>/<number>_<name>.py``."""
    root = _root(folder)
    is_known = _is_kernelbench(root)
    tasks = []
    for level in levels:
        found, others = _task_files(root / f"level{level}")
        if others:
            log.warning(
                "%s: left out, tasks are named <number>_<name>.py: %s",
                root / f"level{level}",
                ", ".join(path.name for path in others),
            )
        if not found:
            raise DataError(
                f"{root / f'level{level}'}: no tasks named <number>_<name>.py; "
                f"set tasks.kernelbench.path to a KernelBench checkout"
            )
        for (number, _, path), (following, _, other) in itertools.pairwise(found):
            if number == following:
                raise DataError(f"{path} and {other}: two tasks of number {number}; give one of them another")
        for number, name, path in found:
            tasks.append(
                Task(
                    id=f"kb/{level}/{number}",
                    level=level,
                    name=name,
                    source=_read(path),
                    origin="kernelbench",
                    flaws=flaws(level, number) if is_known else (),
                )
            )
    return tasks


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except UsageError as e:
        raise DataError(f"{e}, or take it out of the folder") from None


def _task_files(level: Path) -> tuple[list[tuple[int, str, Path]], list[Path]]:
    """Number, name and path of a level's tasks, in order; and its other Python files."""
    found, others = [], []
    for path in sorted(level.glob("*.py")):
        if match := _FILE.fullmatch(path.name):
            found.append((int(match[1]), match[2].strip("_"), path))
        else:
            others.append(path)
    return sorted(found), others


def _root(folder: Path) -> Path:
    return folder / "KernelBench" if (folder / "KernelBench").is_dir() else folder


def _own_folder(source: KernelBenchSource) -> Path | None:
    return Path(source.path).expanduser() if source.path else None


def is_kernelbench(source: KernelBenchSource) -> bool:
    """Whether the tasks are KernelBench's own: from git, or a folder laid out as a checkout of it."""
    folder = _own_folder(source)
    return folder is None or _is_kernelbench(_root(folder))


def _is_kernelbench(root: Path) -> bool:
    return root.resolve().name == "KernelBench"


def find_tasks(names: Collection[str], tasks: Sequence[Task]) -> set[str]:
    """Ids of tasks that are named by id, by file name, or by what follows the number in it.

    Raises:
        ConfigError: no task is called so, or several are.
    """
    known: dict[str, list[str]] = {}
    for task in tasks:
        number = task.id.rpartition("/")[2]
        for name in (task.id, f"{number}_{task.name}", f"level{task.level}/{number}_{task.name}", task.name):
            known.setdefault(_composed(name), []).append(task.id)
    found: set[str] = set()
    for name in names:
        ids = known.get(_composed(name.removesuffix(".py")), [])
        if len(ids) != 1:
            what = f"{', '.join(ids)} are all called {name!r}" if ids else f"no task {name!r}"
            there = ", ".join(f"{task.id} {task.name}" for task in tasks)
            raise ConfigError(f"tasks.kernelbench.held_out: {what}; give an id. There are {there}")
        found.add(ids[0])
    return found


def _composed(name: str) -> str:
    """An é of one sign, or of an e and its accent, as some systems name files, is the same."""
    return unicodedata.normalize("NFC", name)


def task_paths(source: KernelBenchSource) -> dict[str, Path]:
    """The file of each task of a local folder, by the task's id; empty for a repository."""
    folder = _own_folder(source)
    if folder is None:
        return {}
    return {
        f"kb/{level}/{number}": path
        for level in source.levels
        for number, _, path in _task_files(_root(folder) / f"level{level}")[0]
    }


def source_digests(source: KernelBenchSource) -> dict[str, str]:
    """Digests of the files that a local folder's tasks are read from, by name; empty for a repository, which is pinned
    by its commit, and where there is no such folder.
    """
    found: dict[str, str] = {}
    for path in task_paths(source).values():
        digests = content_digests(path)
        found.update({f"{path.parent.name}/{name}": value for name, value in digests.items()})
    return found


_OPERATOR_NAMES = {
    "conv1d": "conv1d",
    "conv2d": "conv2d",
    "gemm": "linear",
    "matmul": "linear",
    "bmm": "matmul_batched",
    "maxpool": "max_pool2d",
    "avgpool": "avg_pool2d",
    "globalavgpool": "global_avg_pool",
    "batchnorm": "batch_norm",
    "instancenorm": "instance_norm",
    "groupnorm": "group_norm",
    "layernorm": "layer_norm",
    "leakyrelu": "leaky_relu",
    "swish": "silu",
    "add": "bias_add",
    "biasadd": "bias_add",
    "residualadd": "add_input",
    "multiply": "scale",
    "scaling": "scale",
    "sum": "sum_dim",
    "mean": "mean_dim",
    "max": "max_dim",
}


def named_sequence(name: str) -> tuple[str, ...]:
    """The operators that a level-2 name spells, in our words: ``Conv2d_ReLU_BiasAdd`` -> conv2d, relu, bias_add."""
    words = [w.lower() for w in name.split("_") if w]
    return tuple(_OPERATOR_NAMES.get(w, w) for w in words)


# --- git --------------------------------------------------------------------------------------------------------


def fetch(repository: str, commit: str, cache_dir: Path = CACHE) -> Path:
    """Folder with ``repository`` at ``commit``, from the cache or by git; it appears there complete or not at all."""
    if not re.fullmatch("[0-9a-f]{40}", commit):
        raise DataError(f"{commit!r} is not a full commit id of 40 hex digits")
    target = cache_dir.expanduser() / f"{digest('repository', repository)[:12]}-{commit}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    log.info("fetching %s at %s", repository, commit)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as tmp:
        work = Path(tmp) / "checkout"
        work.mkdir()
        _git(work, "init", "--quiet")
        _git(work, "fetch", "--quiet", "--depth", "1", repository, commit)
        _git(work, "checkout", "--quiet", "FETCH_HEAD")
        shutil.rmtree(work / ".git")
        try:
            work.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster
                raise
    return target


def _git(folder: Path, *args: str) -> None:
    """Run git without prompts. Raises DataError with git's own words and the way out."""
    hint = "check the network and the commit, or set tasks.kernelbench.path to a checkout"
    command = ["git", "-C", str(folder), *args]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        )
    except FileNotFoundError:
        raise DataError(f"git is not installed; install it, or {hint.split(', or ')[1]}") from None
    except subprocess.TimeoutExpired:
        raise DataError(f"git {args[0]} took longer than {_GIT_TIMEOUT_S} s; {hint}") from None
    if done.returncode:
        said = done.stderr.strip().split("\n")[0] or f"exit code {done.returncode}"
        raise DataError(f"git {' '.join(args)} failed: {said}; {hint}")


# --- checksums --------------------------------------------------------------------------------------------------


def set_digest(tasks: Iterable[Task]) -> str:
    """Digest of a set of tasks, whatever their order."""
    return digest("tasks", *sorted(f"{t.id} {t.digest}" for t in tasks))


# --- the split --------------------------------------------------------------------------------------------------


def split(
    tasks: Sequence[Task], num_train_per_level: int, seed: int, held_out: Collection[str] = ()
) -> list[tuple[Task, str]]:
    """Tasks with ``train`` or ``level<n>`` (held out), in the order given; a seeded draw within each level.

    Levels beyond `TRAINED_LEVELS` are held out as a whole.

    Args:
        held_out: ids that must not be trained on.

    Raises:
        ConfigError: a level has too few tasks to train on that many and hold one out.
    """
    train: set[str] = set()
    for level in sorted({t.level for t in tasks} & set(TRAINED_LEVELS)):
        of_level = [t.id for t in tasks if t.level == level]
        free = [i for i in of_level if i not in held_out]
        if num_train_per_level > len(free) or num_train_per_level >= len(of_level):
            raise ConfigError(
                f"tasks.kernelbench.num_train_per_level is {num_train_per_level}, but level {level} has "
                f"{len(of_level)} tasks, of which {len(free)} may be trained on and one at least is held out; lower "
                f"it, or name the tasks to hold out: tasks.kernelbench.held_out"
            )
        train.update(random.Random(f"kevin split of level {level}, seed {seed}").sample(free, num_train_per_level))
    return [(t, "train" if t.id in train else f"level{t.level}") for t in tasks]
