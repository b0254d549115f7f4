"""A command in a supervised process: signals, exit codes, what is below it, and what stays of its folders."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from process_fixtures import until

from kevin.cli.supervisor import SAID
from kevin.core import files, scratch

COMMAND = """\
import os, subprocess, sys, threading, time
import kevin.cli, kevin.cli.app as app

def work():
    from kevin.cli.supervisor import note
    from kevin.core.scratch import scratch_folder
    note("log", "log")
    with scratch_folder("test-", Path("scratch")):
        holds = threading.Condition()
        subprocess.Popen(["sh", "-c", "trap '' INT TERM HUP; setsid sleep 61 & sleep 61"])
        print("ready", flush=True)
        while True:
            with holds:
                holds.wait(1e-4)

from pathlib import Path
app.app = work
kevin.cli.main()
"""
ENDS = "import sys, kevin.cli, kevin.cli.app as app; app.app = lambda: {}; kevin.cli.main()"


def start(folder: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A command that keeps waiting on a lock, with children that ignore every signal that can be ignored."""
    run = subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert run.stdout is not None and run.stdout.readline() == "ready\n"
    below = psutil.Process(run.pid)
    until(lambda: len(below.children(recursive=True)) >= 4, "its children have started", 20)
    return run, below.children(recursive=True)


@pytest.mark.parametrize("to_group", [False, True])
@pytest.mark.parametrize("number", list(SAID))
def test_a_signal_ends_everything_below(tmp_path: Path, number: signal.Signals, to_group: bool) -> None:
    run, below = start(tmp_path)
    for _ in range(2):
        (os.killpg if to_group else os.kill)(run.pid, number)
    _, said = run.communicate(timeout=30)
    assert (run.returncode, said) == (128 + number, f"kevin: {SAID[number]}\n")
    assert not [p for p in below if p.is_running()]
    assert SAID[number] in (tmp_path / "log").read_text()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_what_is_killed_takes_the_command_along_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    run, below = start(tmp_path)
    run.kill()
    run.wait(timeout=30)
    child = below[0]
    assert psutil.wait_procs([child], timeout=20)[1] == []
    for process in below[1:]:  # they have not asked to end with their parent
        process.kill()
    run.communicate(timeout=30)
    assert list((tmp_path / "scratch").iterdir()) != []
    with scratch.scratch_folder("test-", tmp_path / "scratch") as folder:
        assert {p.name for p in (tmp_path / "scratch").iterdir()} == {folder.name, f"{folder.name}.lock"}


def test_a_command_that_is_killed_alone_says_so(tmp_path: Path) -> None:
    run, below = start(tmp_path)
    below[0].kill()
    _, said = run.communicate(timeout=30)
    assert run.returncode == 128 + signal.SIGKILL
    assert said.startswith("kevin: its process was killed by SIGKILL") and said.count("\n") == 1
    assert not [p for p in below if p.is_running()]


@pytest.mark.parametrize(("work", "code"), [("None", 0), ("sys.exit(7)", 7), ("1 / 0", 1)])
def test_exit_codes_are_those_of_the_work(work: str, code: int) -> None:
    run = subprocess.run([sys.executable, "-c", ENDS.format(work)], capture_output=True, text=True, check=False)
    assert run.returncode == code, run.stderr
    assert ("internal error, ZeroDivisionError" in run.stderr) == (code == 1)


def test_ctrl_c_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """As for what a shell runs in the background."""
    work = "(print('ready', flush=True), __import__('time').sleep(2))"
    command = ["sh", "-c", 'trap "" INT; exec "$0" "$@"', sys.executable, "-c", ENDS.format(work)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert run.stdout is not None and run.stdout.readline() == "ready\n"
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(timeout=30) == 0


def test_folders_of_the_living_are_left_alone(tmp_path: Path) -> None:
    with scratch.scratch_folder("test-", tmp_path) as first, scratch.scratch_folder("test-", tmp_path) as second:
        assert first.is_dir() and second.is_dir() and first != second
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    stale, alive = tmp_path / ".x.json.abc.json", tmp_path / ".x.json.def.json"
    stale.write_text("half")
    with alive.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        files.write_text(tmp_path / "x.json", "whole")
        assert {p.name for p in tmp_path.iterdir()} == {"x.json", alive.name}


def test_a_line_that_a_kill_cut_short_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": 1}\n{"a": ')
    files.append_line(path, '{"a": 3}')
    assert path.read_text() == '{"a": 1}\n{"a": 3}\n'


def test_a_script_that_starts_a_command_whenever_it_is_imported_is_told_so(tmp_path: Path) -> None:
    """Its own processes import it: each would start the command again, and whoever waits for them would wait on."""
    script = tmp_path / "run.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "if multiprocessing.current_process().name == 'MainProcess':\n"
        "    worker = multiprocessing.get_context('spawn').Process(target=print, args=('worked',))\n"
        "    worker.start()\n"
        "    worker.join()\n"
        "    sys.exit(worker.exitcode)\n"
        "from kevin.cli import main\n"
        "main()\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert (
        run.stderr
        == f'kevin: {script} calls main() when it is imported, too: put that under if __name__ == "__main__":\n'
    )


@pytest.mark.parametrize(("given", "reports"), [({}, False), ({"DO_NOT_TRACK": "0"}, True)])
def test_libraries_report_nothing_unless_they_are_allowed_to(given: dict[str, str], reports: bool) -> None:
    work = "print(__import__('huggingface_hub.constants').constants.HF_HUB_DISABLE_TELEMETRY)"
    others = {k: v for k, v in os.environ.items() if "TELEMETRY" not in k and k != "DO_NOT_TRACK"}
    run = subprocess.run(
        [sys.executable, "-c", ENDS.format(work)], env=others | given, capture_output=True, text=True, check=True
    )
    assert run.stdout == f"{not reports}\n"
