"""What the last words of a cell's process on stderr, and how it ended, tell its candidate's author."""

from __future__ import annotations

import re
import signal

MAX_WORDS = 600
SIGNALS = {
    signal.SIGSEGV: ("segmentation_fault", "segmentation fault: an access outside of the given memory"),
    signal.SIGBUS: ("bus_error", "bus error: an access outside of the given memory"),
    signal.SIGFPE: ("arithmetic_error", "arithmetic error: an integer division by zero"),
    signal.SIGILL: ("illegal_instruction", "illegal instruction"),
    signal.SIGABRT: ("aborted", "the program aborted"),
    signal.SIGKILL: ("killed", "the process was killed"),
    signal.SIGSYS: ("forbidden_call", "a forbidden system call"),
    signal.SIGXFSZ: ("output_flood", "it wrote more than the sandbox allows"),
}
_UNCAUGHT = re.compile(r"terminate called after throwing an instance of '(.+?)'(?:\n  what\(\):  (.*))?\Z", re.DOTALL)
"""Last words of the C++ runtime about an exception that nobody catches, before it aborts."""
_TRACEBACK = re.compile(
    r"^Traceback \(most recent call last\):\n(?P<frames>(?:[ \t].*\n|\n)+)(?P<error>\S.*)", re.MULTILINE
)
_FRAME = re.compile(r'^  File "kernel\.py", (line \d+, in .*)', re.MULTILINE)
_NO_THREADS = re.compile(
    r"libgomp: Thread creation failed|pthread_create failed|"
    r"std::system_error: (?:Operation not permitted|Resource temporarily unavailable)\Z"
)


def how_it_was_killed(number: signal.Signals, said: str) -> tuple[str, str]:
    """Reason and text for a process that ended by one of `SIGNALS` and left these words on stderr."""
    reason, text = SIGNALS[number]
    last = said[-MAX_WORDS:]
    if "bad_alloc" in last or "Cannot allocate memory" in last:
        reason, text = "out_of_memory", "it asked for more memory than the limit"
    elif number is signal.SIGABRT and (uncaught := _UNCAUGHT.search(said)):
        kind, what = uncaught.groups()
        text = f"uncaught exception: {kind}" + (f": {what[:MAX_WORDS]}" if what else "")
        return "uncaught_exception", f"{said[: uncaught.start()][-MAX_WORDS:]}\n{text}".strip()
    return reason, f"{text}\n{last}".strip()


def without_harness(said: str) -> str:
    """The same, of tracebacks only the candidate's own frames and the error."""

    def shortened(found: re.Match[str]) -> str:
        frames = [f"  {frame}\n" for frame in _FRAME.findall(found["frames"])]
        return f"{''.join(frames[-3:]) or 'what the harness has in its process failed: '}{found['error']}"

    return _TRACEBACK.sub(shortened, said)


def with_hint(message: str) -> str:
    """The same with what its last words do not say."""
    if not _NO_THREADS.search(message):
        return message
    return f"{message}\na kernel may have no more threads than judge.num_threads in the judge's configuration says"
