"""Which of the seeded faults do the tests catch?

Each ``NN_name.patch`` beside this file is a bug that a refactoring could introduce. Its first line says what is wrong,
the line ``room:`` names the tests that should catch it, and ``first:``, where it stands, those of them that are run
before the others. A fault is caught when a test fails with it and passes without it. Patches are applied to a copy of
the tracked files; nothing in the working tree is changed but the table that ``--out`` names.

    python tests/seeded/run.py                all faults, one after another
    python tests/seeded/run.py 01 claim       those whose name holds one of these
    python tests/seeded/run.py --narrow       only with the tests that are run first: minutes, not hours
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NOT_CAUGHT = "not caught"
COLUMNS = ("name", "caught_by", "seconds")
_PASSED, _FAILED = 0, 1
"""Exit codes of pytest; with any other it ran no test, or not to the end."""


class NotMeasuredError(Exception):
    """Whether the tests catch a fault cannot be said, and why."""


def tests_of(patch: Path, line: str) -> list[str]:
    """What the line ``room:`` or ``first:`` of a patch's head names."""
    head = patch.read_text().partition("\n--- ")[0].splitlines()
    return [path for text in head if text.startswith(f"{line}:") for path in text.split()[1:]]


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


def environment(copy: Path) -> dict[str, str]:
    """Processes that tests start import the copy too: PYTHONPATH comes before an editable install."""
    path = [str(copy / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "GIT_CEILING_DIRECTORIES": str(copy.parent)}


def apply(patch: Path, copy: Path, *options: str) -> None:
    """Raises NotMeasuredError for a patch that does not fit the tree, and where another kevin would be imported."""
    command = ["git", "apply", *options, str(patch)]
    done = subprocess.run(command, cwd=copy, env=environment(copy), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasuredError(f"the patch does not apply ({done.stderr.strip()}); make it anew for this code")
    command = [sys.executable, "-c", "import kevin; print(kevin.__file__)"]
    done = subprocess.run(command, cwd="/", env=environment(copy), capture_output=True, text=True, check=False)
    if not done.stdout.startswith(str(copy)):
        raise NotMeasuredError(f"the copy is not what is imported: {done.stdout or done.stderr}")


def first_failure(copy: Path, paths: Sequence[str], timeout_s: float) -> str | None:
    """The first test that fails; None where all pass. Raises NotMeasuredError where they do not run to the end."""
    cache, said = copy.parent / "cache", copy.parent / "said"
    shutil.rmtree(cache, ignore_errors=True)
    options = ["-o", f"cache_dir={cache}", "-o", f"timeout={timeout_s / 2:.0f}"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", *options, *paths]
    with said.open("wb") as out:
        run = subprocess.Popen(
            command, cwd=copy, env=environment(copy), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = run.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise NotMeasuredError(f"{' '.join(paths)}: not done after {timeout_s:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    if code == _PASSED:
        return None
    failed = cache / "v/cache/lastfailed"
    if code != _FAILED or not failed.exists():
        words = said.read_text(errors="replace")[-1500:]
        raise NotMeasuredError(f"{' '.join(paths)}: pytest ended with {code}:\n{words}")
    return str(next(iter(json.loads(failed.read_text()))))


def measure(patch: Path, timeout_s: float, *, narrow: bool) -> str:
    """The test that catches a fault, of those that are run first or else of its whole room; or `NOT_CAUGHT`.

    Raises:
        NotMeasuredError: also where ``narrow`` leaves out the room and the others pass, which says nothing of the room.
    """
    first, room = tests_of(patch, "first"), tests_of(patch, "room")
    with copied_tree() as copy:
        if missing := [path for path in (*first, *room) if not (copy / path).exists()]:
            raise NotMeasuredError(f"no such tests: {' '.join(missing)}; correct the head of {patch.name}")
        apply(patch, copy)
        caught_by = first_failure(copy, first, timeout_s) if first else None
        if caught_by is None and narrow and first:
            raise NotMeasuredError(f"{' '.join(first)} pass; its whole room was not run")
        caught_by = caught_by or first_failure(copy, room, timeout_s)
        if caught_by is None:
            return NOT_CAUGHT
        apply(patch, copy, "--reverse")
        if first_failure(copy, [caught_by], timeout_s) is not None:
            raise NotMeasuredError(f"{caught_by} fails without the fault too")
    return caught_by


def write_row(out: Path, row: dict[str, str]) -> None:
    """Put a row into a table, in place of the fault's former one."""
    rows = {}
    if out.exists():
        with out.open(newline="") as file:
            rows = {known["name"]: known for known in csv.DictReader(file)}
    rows[row["name"]] = row
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in sorted(rows))


def main() -> int:
    """Exit code: 0 when every fault was measured and caught, 1 when one was not, 2 for bad usage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of faults; all faults without any")
    parser.add_argument("--narrow", action="store_true", help="leave a room out where tests are named to be first")
    parser.add_argument("--timeout", type=float, default=1800, metavar="S", help="of each run of tests (default: 1800)")
    parser.add_argument("--out", type=Path, metavar="CSV", help="table to fill in, e.g. tests/seeded/results.csv")
    args = parser.parse_args()
    patches = [p for p in sorted(HERE.glob("*.patch")) if not args.names or any(name in p.stem for name in args.names)]
    if not patches:
        parser.error(f"no fault is named like {' '.join(args.names)}")
    num_caught = 0
    for number, patch in enumerate(patches, start=1):
        start = time.monotonic()
        try:
            said = measure(patch, args.timeout, narrow=args.narrow)
        except NotMeasuredError as e:
            said = f"NOT MEASURED: {e}"
        else:
            num_caught += said != NOT_CAUGHT
            if args.out is not None:
                seconds = f"{time.monotonic() - start:.0f}"
                write_row(args.out, {"name": patch.stem, "caught_by": said, "seconds": seconds})
        print(f"[{number}/{len(patches)}] {patch.stem}  {said}", flush=True)
    print(f"{num_caught} of {len(patches)} caught")
    return 0 if num_caught == len(patches) else 1


if __name__ == "__main__":
    sys.exit(main())
