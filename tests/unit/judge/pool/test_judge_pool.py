"""A pool of real workers on this machine: each pair judged once, in order, also when a worker is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import device_fixtures
import psutil
import pytest
from cli_fixtures import BROKEN, GOOD, REFERENCE, WRONG

from kevin.core.errors import HarnessError, SandboxError, TaskError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.judge.pool.judge_pool import JudgePool
from kevin.judge.pool.worker import expect_on_device, limit_devices, staying_off
from kevin.tasks.format import inspect_task

pytestmark = pytest.mark.timing

PROTOCOL = JudgeProtocol(run_timeout_s=5.0, timing=device_fixtures.PROTOCOL.timing)
TASK = Task(id="relu", level=1, name="relu", source=REFERENCE, origin="user")
EXITS = GOOD.replace("{\n", "{\n  exit(0);\n", 1)
SPINS = GOOD.replace("{\n", "{\n  for (volatile int k = 0;;) k = k + 1;\n", 1)


def pairs(*sources: str) -> list[tuple[Task, Kernel]]:
    return [(TASK, Kernel(dialect="c_abi", language="cpp", source=source)) for source in sources]


def outcomes(results: list[Verdict | HarnessError]) -> list[Outcome]:
    assert all(isinstance(r, Verdict) for r in results), results
    return [r.outcome for r in results if isinstance(r, Verdict)]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgePool]:
    with JudgePool(PROTOCOL, tmp_path_factory.mktemp("store")) as pool:
        yield pool


def test_results_stand_in_the_order_of_the_pairs_and_equal_ones_are_judged_once(pool: JudgePool) -> None:
    """Eight seconds: the first one to use the pool starts it, and four kernels are built and timed."""
    told: list[tuple[int, Verdict | HarnessError]] = []
    asked = pairs(GOOD, BROKEN, GOOD, EXITS, WRONG)
    results = pool.judge(asked, on_verdict=lambda index, result: told.append((index, result)))
    expected = [Outcome.CORRECT, Outcome.COMPILE_ERROR, Outcome.CORRECT, Outcome.REFUSED, Outcome.INCORRECT]
    assert outcomes(results) == expected
    assert results[0] == results[2], "measured twice, they would differ"
    assert dict(told) == dict(enumerate(results)) and len(told) == len(asked)


def test_nothing_is_left_of_what_was_built(pool: JudgePool) -> None:
    assert outcomes(pool.judge(pairs(GOOD.replace("i++", "++i")))) == [Outcome.CORRECT]
    assert pool._builds.is_dir() and not list(pool._builds.iterdir())


@pytest.mark.slow
def test_one_kernel_is_judged_for_many_tasks_at_once(pool: JudgePool) -> None:
    """Each has a build of its own, which goes when that task's verdict is there, and no other's with it."""
    kernel = Kernel(dialect="c_abi", language="cpp", source=GOOD + "// for all\n")
    tasks = [TASK.model_copy(update={"source": f"{REFERENCE}\n# {i}\n"}) for i in range(3)]
    assert outcomes(pool.judge([(task, kernel) for task in tasks])) == [Outcome.CORRECT] * 3
    assert not list(pool._builds.iterdir())


def test_what_is_built_ahead_is_not_built_again(pool: JudgePool) -> None:
    """Nor is what the store knows, what a rule refuses, or the same kernel twice; what does not build is a verdict."""
    known = pairs(GOOD, EXITS)
    pool.judge(known)
    asked = pairs(GOOD + "// ahead\n", BROKEN + "// ahead\n")
    for pair in [*known, *asked, *asked]:
        pool.build_ahead(*pair)
    assert len(pool._ahead) == 2
    builds = [future.result() for future in pool._ahead.values()]
    results = pool.judge(asked)
    assert outcomes(results) == [Outcome.CORRECT, Outcome.COMPILE_ERROR]
    assert [r.seconds["build"] for r in results if isinstance(r, Verdict)] == [b.seconds for b in builds]
    assert not pool._ahead and not list(pool._builds.iterdir())


@pytest.mark.slow
def test_what_a_kernel_is_judged_against_is_made_before_it_comes_and_goes_with_the_batch(pool: JudgePool) -> None:
    """A reference that does not run stops neither the others nor the pool; nothing is made for a batch that is over."""
    broken = TASK.model_copy(update={"id": "a_broken", "source": REFERENCE.replace("torch.relu", "torch.no_such")})
    spec = inspect_task(REFERENCE, TASK.id)
    broken = broken.model_copy(update={"spec": spec})
    expected = TASK.model_copy(update={"source": f"{REFERENCE}\n# expected\n", "spec": spec})
    kernel = Kernel(dialect="c_abi", language="cpp", source=GOOD + "// expected\n")
    pool.rest()  # a device that keeps as many tasks as it can expects no more
    pool.expect([expected, broken], "c_abi", 4)
    assert [future.result() for future in pool._expecting] == [None]
    (verdict,) = pool.judge([(expected, kernel)])
    assert isinstance(verdict, Verdict) and verdict.outcome is Outcome.CORRECT
    assert "reference" not in verdict.seconds

    over = pool._batch
    pool.rest()
    assert not pool._expecting
    other = kernel.model_copy(update={"source": GOOD + "// not expected\n"})
    pool.start().submit(expect_on_device, [expected], 1, 1, PROTOCOL, "c_abi", over, workers=["device-0"]).result()
    (verdict,) = pool.judge([(expected, other)])
    assert isinstance(verdict, Verdict) and "reference" in verdict.seconds


@pytest.mark.slow
def test_devices_learn_how_many_of_the_expected_kernels_may_come(
    pool: JudgePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same one twice, known ones and those that did not compile do not."""
    pool.judge(known := pairs(GOOD))
    new = pairs(GOOD + "// one\n", GOOD + "// one\n", GOOD + "// two\n", BROKEN + "// three\n", GOOD + "// late\n")
    for pair in [*known, *new[:-1]]:
        pool.build_ahead(*pair)
    assert len([future.result() for future in pool._ahead.values()]) == 3
    told: list[tuple[Any, ...]] = []
    with monkeypatch.context() as patched:
        patched.setattr(pool._client, "run", lambda *told_: told.append(told_))
        pool.all_written([*known, *new])
    assert told == [(limit_devices, 3)]
    pool.all_written(new)
    assert outcomes(pool.judge(new)).count(Outcome.CORRECT) == 4
    with JudgePool(PROTOCOL, pool.store.folder) as idle:
        idle.all_written(new)
        assert idle._client is None, "nothing was announced"


def test_what_the_store_knows_starts_no_worker(pool: JudgePool) -> None:
    new: list[Verdict] = []
    asked = pairs(GOOD + "// new\n", GOOD + "// new\n", WRONG + "// new\n")
    known = pool.judge(asked, on_new=new.append)
    assert len(new) == 2 and {v.key for v in new} == {v.key for v in known if isinstance(v, Verdict)}
    with JudgePool(PROTOCOL, pool.store.folder) as other:
        assert other.judge(asked, on_new=new.append) == known
        assert len(new) == 2 and other._client is None


def test_a_reference_that_does_not_run_is_raised_and_the_pool_goes_on(pool: JudgePool) -> None:
    broken = TASK.model_copy(update={"id": "broken", "source": REFERENCE.replace("torch.relu", "torch.no_such")})
    with pytest.raises(TaskError, match="broken: "):
        pool.judge([(broken, pairs(GOOD)[0][1])])
    assert outcomes(pool.judge(pairs(GOOD + "// once more\n"))) == [Outcome.CORRECT]


@pytest.mark.slow
def test_a_device_that_is_lost_in_the_middle_costs_no_verdict(pool: JudgePool) -> None:
    """Another one is started, which imports torch, and the kernel spins there until it is ended."""

    def device() -> int:
        client = pool.start()
        workers = client.scheduler_info(n_workers=-1)["workers"]
        (address,) = (a for a, worker in workers.items() if worker["name"] == "device-0")
        return int(client.run(os.getpid, workers=[address])[address])

    first = device()

    lost: list[psutil.Process] = []

    def lose() -> None:
        time.sleep(2.0)  # the kernel, which would be ended after five, spins
        lost.extend(psutil.Process(first).children(recursive=True))
        os.kill(first, signal.SIGKILL)

    losing = threading.Thread(target=lose)
    losing.start()
    own = os.sched_getaffinity(0)
    with staying_off(pool.device_cores):
        assert len(own) == 1 or max(own) not in os.sched_getaffinity(0)
        results = pool.judge(pairs(SPINS))
    losing.join()
    assert os.sched_getaffinity(0) == own
    assert outcomes(results) == [Outcome.TIMEOUT]
    assert device() != first
    assert set(psutil.Process(device()).cpu_affinity()) == own, "it chooses the device's cores among these"
    assert lost and not [p for p in lost if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def failed(error: BaseException) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def test_a_failure_of_the_harness_is_a_result_and_a_full_disk_ends_it_all() -> None:
    sandbox = SandboxError("no namespaces")
    assert JudgePool._result(failed(sandbox), "run") is sandbox
    found = JudgePool._result(failed(ZeroDivisionError("ours")), "build")
    assert isinstance(found, HarnessError) and "stage build: ZeroDivisionError: ours" in str(found)
    for error in (OSError(28, "No space left on device"), TaskError("relu: does not run")):
        with pytest.raises(type(error)):
            JudgePool._result(failed(error), "run")


def test_a_pool_leaves_its_store_as_it_is(tmp_path: Path) -> None:
    with JudgePool(PROTOCOL, tmp_path / "store"):
        pass
    assert not (tmp_path / "store").exists()
