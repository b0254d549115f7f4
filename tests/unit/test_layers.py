"""Imports point one way, and tests stand where what they test stands."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
JUDGE = "kevin.judge"

# Each imports only from those before it, and from itself.
PACKAGES = (
    "core",
    "report",
    "tasks",
    "policy",
    "workflow",
    "judge",
    "api",
    "serve",
    "rollout",
    "writer",
    "train",
    "cli",
)
ROOMS = ("inside", "store", "screen", "sandbox", "compile", "correctness", "timing", "device", "evaluate", "pool",
         "benchmarks")  # fmt: skip
APART = {
    *(("tasks", "report"), ("policy", "report"), ("policy", "tasks")),
    *((package, "workflow") for package in ("judge", "api", "serve", "rollout", "writer", "train")),
    *(("writer", package) for package in ("report", "policy", "judge", "api", "serve", "rollout")),
    ("train", "writer"),
}
"""Not even where the order would allow it."""


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _imports() -> dict[str, set[str]]:
    """Module -> modules of this project that it imports anywhere, also inside functions and for types alone."""
    paths = {_name(path): path for path in sorted((SOURCE / "kevin").rglob("*.py"))}
    found: dict[str, set[str]] = {}
    for name, path in paths.items():
        targets: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                targets |= {member if member in paths else node.module for member in members}
        found[name] = {target for target in targets if target in paths} - {name}
    return found


def _below(name: str, package: str) -> str:
    return name.removeprefix(f"{package}.").split(".")[0]


@pytest.mark.parametrize(("package", "order"), [("kevin", PACKAGES), (JUDGE, ROOMS)])
def test_every_import_points_down(package: str, order: tuple[str, ...]) -> None:
    arrows = {
        (_below(name, package), _below(target, package), name, target)
        for name, targets in _imports().items()
        for target in targets
        if name.startswith(f"{package}.") and target.startswith(f"{package}.")
    }
    known = {_below(name, package) for name in _imports() if name.startswith(f"{package}.")}
    assert known == set(order), "a room without a place in the order"
    up = [f"{name} imports {target}" for a, b, name, target in sorted(arrows) if order.index(b) > order.index(a)]
    assert up == []
    assert len(arrows) > len(order)


def test_rooms_that_stand_apart() -> None:
    arrows = {(_below(name, "kevin"), _below(t, "kevin")) for name, targets in _imports().items() for t in targets}
    assert not arrows & APART


def test_no_circles() -> None:
    try:
        TopologicalSorter(_imports()).prepare()
    except CycleError as e:
        pytest.fail(" -> ".join(e.args[1]))


LIGHT = {
    "the command line": ("import kevin.cli", "torch transformers trl distributed pandas matplotlib"),
    "the library": ("from kevin import *", "torch numpy pandas transformers trl distributed dask aiohttp matplotlib"),
    "the catalog": ("import kevin.tasks.catalog as c; c.catalog('cpu')", "torch"),
    "rollouts and the loader of policies": (
        "import kevin.rollout.run, kevin.rollout.search, kevin.rollout.written, kevin.policy.load, kevin.policy.replay",
        "torch transformers trl vllm distributed openai",
    ),
    "the arithmetic of training": (
        f"import {', '.join(f'kevin.train.{name}' for name in ('rows', 'order', 'records', 'bill', 'checkpoint'))}",
        "torch",
    ),
    "counting products": (
        "import torch; from kevin.judge.device.roofline import _Products; f = _Products(); f.__enter__();"
        "torch.ones(2, 3) @ torch.ones(3, 2); assert f.num_flops == 24",
        "torch._dynamo",
    ),
}
"""What brings nothing of these packages with it, until something of it needs one."""


@pytest.mark.parametrize("name", LIGHT)
def test_what_is_light_imports_nothing_heavy(name: str) -> None:
    code, heavy = LIGHT[name]
    told = f"import sys; {code}; print(sorted({set(heavy.split())} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_trl_is_imported_in_one_module() -> None:
    imports = re.compile(r"^\s*(from|import) trl\b", re.MULTILINE)
    assert [path.name for path in SOURCE.rglob("*.py") if imports.search(path.read_text())] == ["grpo.py"]


def test_unit_tests_mirror_the_source_tree() -> None:
    unit = ROOT / "tests/unit"
    rooms = {path.parent.relative_to(unit) for path in unit.rglob("*.py")} - {Path()}
    assert {Path(name) for name in PACKAGES} <= rooms
    assert {Path("judge", name) for name in ROOMS if (SOURCE / "kevin/judge" / name).is_dir()} - rooms == {
        Path("judge/inside")  # runs beside a candidate alone: tests/attacks
    }
    assert [str(room) for room in rooms if not (SOURCE / "kevin" / room).is_dir()] == []
