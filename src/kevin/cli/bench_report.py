"""`kevin bench report`: what tables and page cost, on a study of invented numbers."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kevin.core.errors import HarnessError
from kevin.core.texts import strict_json

if TYPE_CHECKING:
    from kevin.report.synthetic import Synthetic

_COMMAND = """
import atexit, re
from pathlib import Path
peak = lambda: re.search("VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text("utf-8"))[1]
atexit.register(lambda: print(peak(), flush=True))
from kevin.cli.app import app
app()
"""
"""The command line without its supervisor; says last what memory it took at most, in KiB."""


def bench_report(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the synthetic study and report_bench.json.")
    ],
    num_tasks: Annotated[int, typer.Option("--tasks", help="Held-out tasks.", min=2, max=9999)] = 200,
    num_trajectories: Annotated[
        int, typer.Option("--trajectories", help="Trajectories of each task and policy.", min=1)
    ] = 16,
    num_turns: Annotated[int, typer.Option("--turns", help="Turns of each trajectory.", min=1)] = 8,
    num_policies: Annotated[int, typer.Option("--policies", help="Compared, seeds among them.", min=1)] = 6,
    chars: Annotated[int, typer.Option("--chars", help="Characters of each answer.", min=100)] = 6000,
) -> None:
    """Seconds and peak memory of scores, every table and the page, each by the command that the workflow calls.

    Answers and verdicts are invented; files of figures are not made and so not on the page.
    """
    from kevin.core.files import write_text
    from kevin.report.synthetic import SPLITS, write_synthetic
    from kevin.report.tables import SPLITS as EVERY_SPLIT
    from kevin.report.tables import TABLES

    made = write_synthetic(
        out,
        num_tasks=num_tasks,
        num_trajectories=num_trajectories,
        num_turns=num_turns,
        num_policies=num_policies,
        chars=chars,
    )
    rows = [_scored(made)]
    shared = ["--config", str(made.config), "--baselines", str(made.baselines), *_repeat("--scores", made.scores)]
    names = [name for name in TABLES if name in SPLITS or name not in EVERY_SPLIT]
    steps = {name: ["table", name, *shared, "--out", str(out / "tables" / f"{name}.csv")] for name in names}
    steps["rl_gain"] = [
        *("rl-gain", "--config", str(made.config), *_repeat("--scores", made.scores)),
        *("--out", str(out / "tables" / "rl_gain.csv")),
    ]
    tables = [out / "tables" / f"{name}.csv" for name in steps]
    files = [*_repeat("--tables", tables), *_repeat("--turns", made.turns), "--tasks", str(made.tasks)]
    steps["report.html"] = ["report", *shared, *files, "--out", str(out / "report.html")]
    _tell(rows[0])
    for name, arguments in steps.items():
        rows.append({"step": name} | _measured(arguments))
        _tell(rows[-1])
    total = sum(row["seconds"] for row in rows)
    typer.echo(f"{'all':<16}{total:>8.1f} s{max(row['peak_mb'] for row in rows):>8.0f} MB, one after the other")
    size = {"tasks": num_tasks, "trajectories": num_trajectories, "turns": num_turns, "policies": num_policies}
    write_text(
        out / "report_bench.json", strict_json({"size": size | {"chars": chars}, "steps": rows}, indent=1) + "\n"
    )


def _scored(made: Synthetic) -> dict[str, Any]:
    """All rollouts, one command for each policy and split, as the workflow scores them."""
    found = []
    for turns, scores, (policy, split) in zip(made.turns, made.scores, made.pairs, strict=True):
        own = ["--policy", policy, "--split", split, "--tasks", str(made.tasks), "--config", str(made.config)]
        found.append(_measured(["score", "--turns", str(turns), *own, "--out", str(scores)]))
    return {
        "step": "scores",
        "seconds": sum(row["seconds"] for row in found),
        "peak_mb": max(row["peak_mb"] for row in found),
    }


def _tell(row: dict[str, Any]) -> None:
    typer.echo(f"{row['step']:<16}{row['seconds']:>8.1f} s{row['peak_mb']:>8.0f} MB")


def _repeat(option: str, paths: list[Path]) -> list[str]:
    return [part for path in paths for part in (option, str(path))]


def _measured(arguments: list[str]) -> dict[str, Any]:
    """Wall seconds and peak resident memory of one command. Raises HarnessError where it fails."""
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", _COMMAND, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise HarnessError(f"kevin {arguments[0]} {arguments[1]} failed with exit code {done.returncode}")
    return {"seconds": time.monotonic() - start, "peak_mb": int(done.stdout.split()[-1]) / 1024}
