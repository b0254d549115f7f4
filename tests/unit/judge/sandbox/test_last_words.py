"""What is told of a cell's process that has ended."""

from __future__ import annotations

import signal

import pytest

from kevin.judge.sandbox.last_words import how_it_was_killed, with_hint, without_harness

HARNESS = """Traceback (most recent call last):
  File "/kevin/judge/inside/native.py", line 78, in <module>
    main()
  File "/kevin/judge/inside/native.py", line 66, in main
    while line := channel.readline():
                  ^^^^^^^^^^^^^^^^^^
"""
OWN = """  File "kernel.py", line 4, in forward
  File "/kevin/judge/inside/host.py", line 90, in __call__
    call()
"""


def test_of_a_traceback_the_candidates_part_is_told() -> None:
    told = without_harness(f"before\n{HARNESS}OSError: read() gave 'NoneType'\nafter")
    assert told == "before\nwhat the harness has in its process failed: OSError: read() gave 'NoneType'\nafter"
    assert without_harness(f"{HARNESS}{OWN}KeyboardInterrupt: mine") == "  line 4, in forward\nKeyboardInterrupt: mine"
    assert without_harness("no traceback\n") == "no traceback\n"


NO_THREADS = "terminate called after throwing an instance of 'std::system_error'\n  what():  Operation not permitted"
TOO_MANY = {
    "OpenMP": "libgomp: Thread creation failed: Operation not permitted",
    "std::thread": how_it_was_killed(signal.SIGABRT, NO_THREADS)[1],
    "std::thread elsewhere": "uncaught exception: std::system_error: Resource temporarily unavailable",
}


@pytest.mark.parametrize("name", TOO_MANY)
def test_who_wants_more_threads_is_told_the_setting(name: str) -> None:
    assert with_hint(TOO_MANY[name]).startswith(f"{TOO_MANY[name]}\n")
    assert with_hint(TOO_MANY[name]).count("judge.num_threads") == 1


def test_other_words_get_no_hint() -> None:
    for said in ("uncaught exception: std::runtime_error: Operation not permitted", "segmentation fault", ""):
        assert with_hint(said) == said
