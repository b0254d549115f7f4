"""Which of the seeded faults do the tests catch?

Each ``NN_name.patch`` beside this file is a bug that a refactoring could introduce. Its first line says what is wrong,
the line ``room:`` names the tests that should catch it, and ``first:``, where it stands, those of them that are run
before the others. A fault is caught when a test fails with it and passes without it. Patches are applied to a copy of
the tracked files; nothing in the working tree is changed but the table that ``--out`` names.

    python tests/seeded/run.py                          all faults
    python tests/seeded/run.py 01 claim --jobs 2        those whose name holds one of these
    python tests/seeded/run.py --narrow                 only with the tests that are run first: minutes, not hours
    python tests/seeded/run.py --check-clean            do the rooms' tests pass without any fault?
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results.csv"
NOT_CAUGHT = "not caught"
SUITES = ("old_suite", "new_suite")
_PASSED, _FAILED = 0, 1
"""Exit codes of pytest; with any other it ran no test, or not to the end."""
_running: set[int] = set()
"""Process groups of tests."""


class NotMeasuredError(Exception):
    """Whether the tests catch a fault cannot be said, and why."""


class Fault(NamedTuple):
    """One patch with what its head says."""

    name: str
    patch: Path
    what: str
    room: tuple[str, ...]
    first: tuple[str, ...] = ()


class Finding(NamedTuple):
    """``caught_by``: the test that failed, or `NOT_CAUGHT`."""

    caught_by: str
    seconds: float


def read_fault(patch: Path) -> Fault:
    """Raises ValueError for a patch without a sentence or a room."""
    head = patch.read_text().partition("\n--- ")[0].splitlines()
    named = {key: value.split() for key, _, value in (line.partition(":") for line in head[1:])}
    if not head or not head[0].endswith(".") or not named.get("room"):
        raise ValueError(f"{patch}: begins with a sentence that says what is wrong, then a line room: <tests>")
    return Fault(patch.stem, patch, head[0], tuple(named["room"]), tuple(named.get("first", ())))


def read_faults(folder: Path = HERE) -> list[Fault]:
    """In the order of their names."""
    return [read_fault(patch) for patch in sorted(folder.glob("*.patch"))]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of the tracked files as they are now. Not in /tmp, of which sandboxes have one of their own."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    place = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kevin-seeded-", dir=place, ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / "tree"
        for name in listed.decode().split("\0"):
            if name and ((ROOT / name).is_symlink() or (ROOT / name).is_file()):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
        yield copy


def apply(fault: Fault, copy: Path, *options: str) -> None:
    """Raises NotMeasuredError for a patch that does not fit the tree."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)}
    command = ["git", "apply", *options, str(fault.patch)]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasuredError(f"the patch does not apply ({done.stderr.strip()}); make it anew for this code")


class Tests(NamedTuple):
    """How tests are run in a copy."""

    copy: Path
    timeout_s: float
    marker: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Processes that tests start import the copy too: PYTHONPATH comes before an editable install."""
        path = [str(self.copy / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}

    def check_import(self) -> None:
        """Raises NotMeasuredError where Python finds another kevin."""
        command = [sys.executable, "-c", "import kevin; print(kevin.__file__)"]
        done = subprocess.run(command, cwd="/", env=self.environment, capture_output=True, text=True, check=False)
        if not done.stdout.startswith(str(self.copy)):
            raise NotMeasuredError(f"the copy is not what is imported: {done.stdout or done.stderr}")

    def first_failure(self, paths: Sequence[str]) -> str | None:
        """The first test that fails; None where all pass. Raises NotMeasuredError where they do not run to the end."""
        cache = self.copy.parent / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-o", f"cache_dir={cache}"]
        command += ["-o", f"timeout={self.timeout_s / 2:.0f}", *(["-m", self.marker] if self.marker else []), *paths]
        with tempfile.TemporaryFile() as out:
            run = subprocess.Popen(
                command,
                cwd=self.copy,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            _running.add(run.pid)
            try:
                code = run.wait(self.timeout_s)
            except subprocess.TimeoutExpired:
                raise NotMeasuredError(f"{' '.join(paths)}: not done after {self.timeout_s:g} s") from None
            finally:
                _kill(run.pid)
                run.wait()
                _running.discard(run.pid)
            if code == _PASSED:
                return None
            failed = cache / "v/cache/lastfailed"
            if code != _FAILED or not failed.exists():
                out.seek(0)
                said = out.read().decode(errors="replace")[-1500:]
                raise NotMeasuredError(f"{' '.join(paths)}: pytest ended with {code}:\n{said}")
        return str(next(iter(json.loads(failed.read_text()))))


def measure(fault: Fault, timeout_s: float, marker: str | None, *, narrow: bool) -> Finding:
    """Run the fault's tests, those that are named to be first before its whole room.

    Raises:
        NotMeasuredError: also where ``narrow`` leaves out the room and the others pass, which says nothing of the room.
    """
    start = time.monotonic()
    with copied_tree() as copy:
        tests = Tests(copy, timeout_s, marker)
        tests.check_import()
        apply(fault, copy)
        first = [path for path in fault.first if (copy / path).exists()]
        caught_by = tests.first_failure(first) if first else None
        if caught_by is None and narrow and first:
            raise NotMeasuredError(f"{' '.join(first)} pass; its whole room was not run")
        if caught_by is None:
            _say(f"{fault.name}: its whole room is run")
            caught_by = tests.first_failure(_room(fault, copy))
        seconds = time.monotonic() - start
        if caught_by is not None:
            apply(fault, copy, "--reverse")
            if tests.first_failure([caught_by]) is not None:
                raise NotMeasuredError(f"{caught_by} fails without the fault too")
    return Finding(caught_by or NOT_CAUGHT, seconds)


def _room(fault: Fault, copy: Path) -> list[str]:
    if missing := [path for path in fault.room if not (copy / path).exists()]:
        raise NotMeasuredError(f"no such tests: {' '.join(missing)}; correct the line room: of {fault.patch.name}")
    return list(fault.room)


def check_clean(faults: Iterable[Fault], timeout_s: float, marker: str | None) -> bool:
    """Whether all tests of these rooms pass as the tree is."""
    paths = sorted({path for fault in faults for path in fault.room})
    is_clean = True
    with copied_tree() as copy:
        tests = Tests(copy, timeout_s, marker)
        tests.check_import()
        for number, path in enumerate(paths, start=1):
            start = time.monotonic()
            try:
                failed = tests.first_failure([path])
            except NotMeasuredError as e:
                failed = str(e)
            is_clean &= failed is None
            said = "passes" if failed is None else f"FAILS: {failed}"
            _say(f"[{number}/{len(paths)}] {path}  {said}  {time.monotonic() - start:.0f} s")
    return is_clean


def write_findings(out: Path, suite: str, found: dict[str, Finding]) -> None:
    """Put findings into the suite's columns of a table; what else stands there is kept, for faults that there are."""
    columns = ["name", "room", *(column for s in SUITES for column in (s, f"{s}_s"))]
    known: dict[str, dict[str, str]] = {}
    if out.exists():
        with out.open(newline="") as file:
            known = {row["name"]: row for row in csv.DictReader(file)}
    rows = []
    for fault in read_faults():
        row = {**dict.fromkeys(columns, ""), **known.get(fault.name, {}), "name": fault.name}
        row["room"] = " ".join(fault.room)
        if fault.name in found:
            row |= {suite: found[fault.name].caught_by, f"{suite}_s": f"{found[fault.name].seconds:.0f}"}
        rows.append(row)
    partial = out.with_name(f".{out.name}.partial")
    with partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    partial.replace(out)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _say(text: str) -> None:
    print(text, flush=True)


def _tell(asked: dict[Future[Finding], Fault], found: dict[str, Finding], args: argparse.Namespace) -> None:
    """Say what comes of each fault as it is known, and keep it in ``found`` and in the table."""
    _say(f"{len(asked)} faults, {args.jobs} at a time")
    for number, future in enumerate(as_completed(asked), start=1):
        name = asked[future].name
        try:
            finding = found[name] = future.result()
            said = f"{finding.caught_by}  {finding.seconds:.0f} s"
            if args.out is not None:
                write_findings(args.out, args.suite, found)
        except NotMeasuredError as e:
            said = f"NOT MEASURED: {e}"
        _say(f"[{number}/{len(asked)}] {name}  {said}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of faults; all faults without any")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="faults at a time (default: 1)")
    parser.add_argument("--narrow", action="store_true", help="leave a room out where tests are named to be first")
    parser.add_argument("--marker", metavar="EXPR", help="only tests that these markers select, as pytest -m has it")
    parser.add_argument("--timeout", type=float, default=1800, metavar="S", help="of each run of tests (default: 1800)")
    parser.add_argument("--out", type=Path, metavar="CSV", help=f"table to fill in, e.g. {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--suite", choices=SUITES, default=SUITES[-1], help="column of the table (default: new_suite)")
    parser.add_argument("--check-clean", action="store_true", help="run the rooms without faults; all have to pass")
    parser.add_argument("--list", action="store_true", help="show the faults and run nothing")
    return parser.parse_args()


def main() -> int:
    """Exit code: 0 when every fault was measured, 1 when one was not, or a clean room fails, 2 for bad usage."""
    args = _arguments()
    faults = [f for f in read_faults() if not args.names or any(name in f.name for name in args.names)]
    if not faults:
        print(f"no fault is named like {' '.join(args.names)}; see --list", file=sys.stderr)
        return 2
    if args.list:
        for fault in faults:
            _say(f"{fault.name}: {fault.what}\n    {' '.join(fault.room)}")
        return 0
    if args.check_clean:
        return 0 if check_clean(faults, args.timeout, args.marker) else 1
    found: dict[str, Finding] = {}
    with ThreadPoolExecutor(args.jobs) as pool:
        asked: dict[Future[Finding], Fault] = {
            pool.submit(measure, fault, args.timeout, args.marker, narrow=args.narrow): fault for fault in faults
        }
        try:
            _tell(asked, found, args)
        except BaseException:  # Ctrl-C: what was found so far is in the table
            pool.shutdown(wait=False, cancel_futures=True)
            for group in tuple(_running):
                _kill(group)
            raise
    num_caught = sum(f.caught_by != NOT_CAUGHT for f in found.values())
    _say(f"{num_caught} caught, {len(found) - num_caught} not caught, {len(faults) - len(found)} not measured")
    return 0 if len(found) == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
