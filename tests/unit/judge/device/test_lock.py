"""Whose a device is, and who is let onto its memory beside whom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from process_fixtures import until

from kevin.core.protocol import JudgeProtocol
from kevin.judge.device.cpu import CpuHardware
from kevin.judge.device.lock import Admission, Company, DeviceLock, Need


def _started(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def _entering(place: Callable[[], AbstractContextManager[object]], done: list[str], what: str) -> threading.Thread:
    """Says what it is once it is let in, and leaves."""

    def enter() -> None:
        with place():
            done.append(what)

    return _started(enter)


def test_brief_jobs_wait_for_a_pause_and_others_for_the_end() -> None:
    lock, done = DeviceLock(), []
    with lock.held():
        threads = [_entering(lock.held, done, "other"), *(_entering(lock.brief, done, "brief") for _ in range(2))]
        until(lambda: lock._num_brief == 2)
        done.append("measured")
        lock.pause()
        assert done == ["measured", "brief", "brief"]
        lock.pause()  # nobody waits any longer: returns at once
        done.append("measured again")
    for thread in threads:
        thread.join(20)
    assert done == ["measured", "brief", "brief", "measured again", "other"]


def test_a_waiting_thread_gives_the_device_to_others_and_has_it_back_alone() -> None:
    lock, room, seen = DeviceLock(), [0], []

    def other() -> None:
        with lock.held():
            seen.append(room[0])
            room[0] += 1

    with lock.held():
        thread = _started(other)
        while not room[0]:
            lock.wait()
        assert lock._is_held
        seen.append(room[0])
    thread.join(20)
    assert seen == [0, 1] and not lock._is_held


def test_threads_that_wait_do_not_wake_each_other() -> None:
    """Each looked again when another went to wait: a core was busy with that, and a GPU's driver with its questions."""
    lock, looks, is_over = DeviceLock(), [0], [False]

    def waiting() -> None:
        with lock.held():
            while not is_over[0]:
                looks[0] += 1
                lock.wait()

    threads = [_started(waiting) for _ in range(3)]
    until(lambda: looks[0] >= 3)
    time.sleep(0.3)
    assert looks[0] < 300, "some six times each, not thousands of times"
    with lock.brief():
        is_over[0] = True
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_a_failure_gives_the_device_back() -> None:
    lock = DeviceLock()
    for enter in (lock.held, lock.brief):
        with suppress(ValueError), enter():
            raise ValueError
    with lock.held():
        lock.pause()
    assert lock._num_brief == 0


def test_who_wants_to_be_alone_waits_for_those_who_are_there_and_keeps_others_out() -> None:
    company, done = Company(), []
    with company.together():
        threads = [_entering(company.alone, done, "alone")]
        until(lambda: company._wants_alone)
        threads.append(_entering(company.together, done, "late"))
        time.sleep(0.02)
        done.append("first")
    for thread in threads:
        thread.join(timeout=20)
    assert done == ["first", "alone", "late"]


def test_a_hosts_cores_are_one_judges_at_a_time() -> None:
    """Each of two processes opens its own hardware, whose lock is a file's."""
    done: list[str] = []
    opened = threading.Barrier(2)

    def judge(name: str) -> None:
        hardware = CpuHardware(JudgeProtocol())  # pins this thread
        opened.wait(60)
        for _ in range(3):
            with hardware.turn():
                done.append(f"{name} begins")
                time.sleep(0.01)
                done.append(f"{name} ends")

    for thread in [_started(lambda name=name: judge(name)) for name in "ab"]:
        thread.join(60)
    assert len(done) == 12
    assert all(begun.replace("begins", "ends") == ended for begun, ended in zip(done[::2], done[1::2], strict=True))


def test_what_others_may_still_take_is_not_given_away() -> None:
    admission = Admission(lambda _: 100.0, small_bytes=5)
    first = Need(process=20, kept=30, passing=10)
    assert admission.fits(first)
    admission.enter(first)
    assert len(admission) == 1
    assert admission.fits(Need(20, 50, 10)), "what it is to keep is missing in what is free by now"
    assert not admission.fits(Need(20, 51, 10))
    assert admission.fits(Need(20, 51, 10), given_back=1)
    assert not admission.fits(Need(20, 41, 20)), "the largest passing need counts, once"
    admission.leave(first)
    assert admission.fits(Need(20, 51, 10))


def test_small_needs_overtake_and_are_not_asked_about() -> None:
    asked: list[float] = []
    admission = Admission(lambda enough: asked.append(enough) or 0.0, small_bytes=5)  # type: ignore[func-returns-value]
    large, small = admission.stand_in_line(), admission.stand_in_line()
    assert admission.is_next(large, Need(9, 9, 9))
    assert not admission.is_next(small, Need(9, 9, 9)) and admission.is_next(small, Need(1, 1, 1))
    assert admission.fits(Need(1, 0, 1)) and not asked
    assert not admission.fits(Need(1, 1, 1)) and asked == [3], "what is made anew is asked about"
    assert not admission.fits(Need(1, 1, 1), given_back=1, share=0.25) and asked[1:] == [8]
    admission.leave_line(large)
    assert admission.is_next(small, Need(9, 9, 9))
