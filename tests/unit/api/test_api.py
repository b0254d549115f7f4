"""`kevin.Judge` as a program meets it: what importing it costs, its verdicts and errors, and what it leaves behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cli_fixtures import GOOD, REFERENCE, WRONG
from typer.testing import CliRunner

import kevin
from kevin import DeviceError, HarnessError, Judge, JudgeProtocol, Outcome, TaskError, UsageError
from kevin.api import answering
from kevin.api.answering import Inspectors
from kevin.api.engine import Engine
from kevin.cli.app import app
from kevin.judge.store import VerdictStore

pytestmark = pytest.mark.timing

HANGS_FOR_GOOD = "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True:\n    pass\n"
EXITS = "import os\nos._exit(0)\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def judge(store: Path) -> Iterator[Judge]:
    with Judge(device="cpu", store=store) as judge:
        yield judge


def test_what_it_offers_is_there_and_nothing_else() -> None:
    assert all(getattr(kevin, name) is not None for name in kevin.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Jugde'"):
        _ = kevin.Jugde  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_verdict_is_the_command_s(judge: Judge, store: Path, tmp_path: Path) -> None:
    verdict = judge(REFERENCE, GOOD)
    assert verdict.outcome is Outcome.CORRECT and verdict.speedup is not None and verdict.speedup > 0
    assert verdict.protocol_digest == JudgeProtocol(rules=()).digest and verdict.device_name == judge.device_name
    files = [tmp_path / "r.py", tmp_path / "k.cpp"]
    for file, text in zip(files, (REFERENCE, GOOD), strict=True):
        file.write_text(text)
    assert judge(*files) == judge(*map(str, files)) == verdict
    command = ["judge", "--task-file", files[0], "--kernel", files[1], "--store", store, "--json"]
    run = CliRunner().invoke(app, [str(word) for word in command])
    assert (
        run.exit_code == 0 and f'"key": "{verdict.key}"' in run.stdout and str(verdict.timing.median_us) in run.stdout
    )  # type: ignore[union-attr]


def test_pairs_are_taken_as_there_is_room(judge: Judge) -> None:
    taken = 0

    def endless() -> Iterator[tuple[str, str]]:
        nonlocal taken
        while True:
            taken += 1
            yield REFERENCE, WRONG

    results = judge.many(endless(), in_flight=4)
    assert [next(results).verdict is not None for _ in range(5)] == [True] * 5
    assert taken <= 12


def test_threads_share_one_judge_and_equal_pairs_are_judged_once(judge: Judge, store: Path) -> None:
    kernel = GOOD.replace("2.0f", "1.5f")
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(judge(REFERENCE, kernel))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == 6 and all(verdict == found[0] for verdict in found)


def test_a_look_into_the_store_opens_one_file_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listing(store: VerdictStore) -> int:
        raise AssertionError("the store was listed")

    monkeypatch.setattr(VerdictStore, "__len__", listing)
    engine = Engine(JudgeProtocol(), None, store=tmp_path, reference_timeout_s=1.0)
    assert engine.stored("0" * 64) is None


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Judge(device="cpu", trials=3), "trials"),
        (lambda: Judge(device="cpu", num_trials=0), "num_trials"),
        (lambda: Judge(num_trails=5), "no setting 'num_trails'; is num_trials meant"),
        (lambda: Judge(tolerence=1e-3), "is tolerance meant"),
        (lambda: Judge(devise="cuda"), "is device meant"),
        (lambda: Judge(stores="here"), "is store meant"),
        (lambda: Judge(timing={"budgets_s": 1}), r"timing\.budgets_s: unknown key; is budget_s meant"),
        (lambda: Judge(xyz=1), "no setting 'xyz'; there are device, .*num_trials"),
        (lambda: Judge(device="tpu"), "device"),  # type: ignore[arg-type]
    ],
)
def test_a_setting_that_cannot_be_is_named(make: object, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("rules", "found"),
    [((), ()), ("none", ()), (["no_kernel"], ("no_kernel",)), ("default", JudgeProtocol().rules)],
)
def test_settings_replace_fields_of_the_protocol(rules: object, found: tuple[str, ...]) -> None:
    judge = Judge(protocol=JudgeProtocol(num_trials=5), rules=rules, tolerance=1e-3)
    assert (judge.protocol.rules, judge.protocol.num_trials, judge.protocol.atol) == (found, 5, 1e-3)
    assert Judge(rules=rules).protocol.rules == found, "the same without a protocol of one's own"
    assert judge.protocol.rtol == 1e-3
    assert Judge().protocol.rules == (), "a person's judge enforces none but those of a given protocol"
    own = JudgeProtocol(rules=("no_kernel",))
    assert Judge(protocol=own).protocol.rules == ("no_kernel",)


def test_arguments_that_do_not_fit_are_named(judge: Judge) -> None:
    with pytest.raises(UsageError, match="CUDA kernel needs device cuda"):
        judge(REFERENCE, GOOD, language="cuda")
    with pytest.raises(UsageError, match="dialect 'triton'"):
        judge(REFERENCE, GOOD, dialect="triton")  # type: ignore[arg-type]


def test_a_missing_gpu_is_said_at_once_and_raised_when_it_is_needed() -> None:
    environment = {**os.environ, "PATH": str(Path(sys.executable).parent)}
    code = (
        "from kevin.core import provenance\nfrom pathlib import Path\nprovenance.Path = lambda name: Path('/nowhere')\n"
        "from kevin import Judge, DeviceError\njudge = Judge('cuda')\nprint('made')\n"
        "try:\n    judge('x = 1\\n', 'y\\n')\nexcept DeviceError as e:\n    print(e)"
    )
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    made, _, raised = run.stdout.partition("made\n")
    assert made == "" and "no NVIDIA GPU was found" in raised and "device='cpu'" in raised
    assert run.stderr.startswith("kevin.Judge: no NVIDIA GPU was found"), "said at once"
    assert issubclass(DeviceError, HarnessError)


def test_a_closed_judge_says_so() -> None:
    judge = Judge(device="cpu")
    judge.close()
    judge.close()
    with pytest.raises(UsageError, match="closed"):
        judge(REFERENCE, GOOD)


def test_a_fork_does_not_use_its_parent_s_judge(judge: Judge) -> None:
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            judge(REFERENCE, GOOD)
        except UsageError as e:
            os.write(writing, str(e).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert b"after a fork" in os.read(reading, 1000)


@pytest.mark.slow
def test_what_is_lost_is_said_and_the_next_kernel_starts_it_again(store: Path) -> None:
    """A judge's processes start twice, which takes seconds."""
    with Judge(device="cpu", store=store, num_trials=2) as judge:
        first = judge(REFERENCE, GOOD)
        future = judge.submit(REFERENCE, GOOD.replace("x[i] > 0", "x[i] >= 0"))
        top = max((p for p in psutil.Process().children() if "answer" in p.cmdline()), key=psutil.Process.create_time)
        below = top.children(recursive=True)
        top.send_signal(signal.SIGKILL)
        with pytest.raises(HarnessError, match="lost before its verdict"):
            future.result(timeout=60)
        assert judge(REFERENCE, GOOD) == first
        assert judge(REFERENCE, WRONG).outcome is Outcome.INCORRECT
    assert psutil.wait_procs(below, timeout=30)[1] == []


@pytest.mark.slow
def test_nothing_is_left_of_a_program_that_is_killed() -> None:
    """A program and its judge's processes start, which takes seconds."""
    code = (
        "import sys, time\nfrom kevin import Judge\njudge = Judge('cpu')\n"
        f"judge({REFERENCE!r}, {WRONG!r})\nprint('judged', flush=True)\ntime.sleep(600)"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None and run.stdout.readline() == "judged\n"
    below = psutil.Process(run.pid).children(recursive=True)
    assert len(below) > 3
    run.kill()
    run.wait()
    assert psutil.wait_procs(below, timeout=30)[1] == []


# --- references ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inspectors() -> Iterator[Inspectors]:
    """Their process ends with them."""
    with Inspectors(20.0) as inspectors:
        yield inspectors
    assert not [process for process in multiprocessing.active_children() if process.name == "kevin-inspector"]


def _fails_and_the_next_one_is_looked_into(inspectors: Inspectors, source: str, told: str) -> None:
    for _ in range(2):
        with pytest.raises(TaskError, match=told):
            inspectors.inspect(source, "mine.py")
    assert inspectors.inspect(REFERENCE, "mine.py").inputs[0].shape == (64, 100)


@pytest.mark.slow
def test_a_reference_that_exits_is_named_and_the_next_one_is_looked_into(inspectors: Inspectors) -> None:
    """One that hangs: see test_serve.py, and the next test."""
    _fails_and_the_next_one_is_looked_into(inspectors, EXITS, "ended the process")


@pytest.mark.slow
def test_a_reference_that_cannot_be_interrupted_is_ended_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that import torch one after the other, and what a good reference may take on a busy machine."""
    monkeypatch.setattr(answering, "_KILL_AFTER_S", 0.5)
    with Inspectors(4.0) as inspectors:
        _fails_and_the_next_one_is_looked_into(inspectors, HANGS_FOR_GOOD, "was not done within 4 s")


def test_what_a_reference_prints_or_reads_is_not_in_the_way(inspectors: Inspectors) -> None:
    source = "import sys\nprint('{}')\nsys.stdin.read()\n" + REFERENCE
    assert inspectors.inspect(source, "loud.py").outputs[0].shape == (64, 100)
