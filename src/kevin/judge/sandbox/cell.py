"""The host's handle on a cell: the sandboxed process that runs one candidate.

Everything here treats the other end as hostile: replies are bounded in size and time, and nothing in them is believed
that the host can measure itself.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any, TypeGuard

from kevin.core.errors import DeviceError, DeviceFullError, SandboxError
from kevin.core.types import Outcome
from kevin.judge.inside.channel import SET_UP, START_DEVICE
from kevin.judge.sandbox.isolation import Isolation, readable_paths, wrap, writable_paths
from kevin.judge.sandbox.last_words import MAX_WORDS, SIGNALS, how_it_was_killed, with_hint, without_harness
from kevin.judge.sandbox.preemption import Calls, held_bytes, waited_us
from kevin.judge.sandbox.process import INSIDE, ExecutedProcess, ForkedProcess, can_fork, fork_server, python_flags

_MAX_REPLY_BYTES = 1 << 20
_PREPARE_TIMEOUT_S = 180.0
"""Of the harness in a cell: it imports torch while compilers run on every core, or its context waits for those of other
cells and for the end of a kernel that was killed."""
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "HOME": "/tmp",
    "LOGNAME": "candidate",
    "OPENBLAS_NUM_THREADS": "1",  # numpy's threads spin for 0.13 s on every core when they are made
}
_REASONS = {"exception", "out_of_memory", "wrong_count", "wrong_type", "wrong_shape", "wrong_dtype", "wrong_strides",
            "wrong_aliasing", "launch_error", "cuda_error", "illegal_memory_access", "launch_failure", "launch_timeout",
            "illegal_instruction", "misaligned_address"}  # fmt: skip
"""That a cell gives for an error, see `inside.calls`, `inside.candidate` and `inside.native_cuda`."""
_MOST_NS, _TIME_FACTOR, _TIME_SLACK_NS = 2**63 - 1, 2.0, 10**9
"""Of what a cell says of its calls: at most, and at most by the time that the host waited for them."""


def _are_times(numbers: object, count: int, most: float) -> TypeGuard[list[int]]:
    return (
        isinstance(numbers, list) and len(numbers) == count and all(type(n) is int and 0 <= n <= most for n in numbers)
    )


def abuse(text: str = "it wrote to the harness's channel") -> CandidateFailed:
    """Of a reply that no cell gives."""
    return CandidateFailed(Outcome.RUNTIME_ERROR, "protocol_abuse", text)


class CandidateFailed(Exception):
    """The candidate, not the harness: carries what becomes of the verdict."""

    def __init__(self, outcome: Outcome, reason: str, message: str) -> None:
        super().__init__(message)
        self.outcome, self.reason, self.message = outcome, reason, message


def prepare_forks(script: str, isolation: Isolation, environment: dict[str, str]) -> None:
    """Have the process begin to import that cells like this are forked from, where they are."""
    if can_fork(isolation):
        fork_server(script, _ENVIRONMENT | environment)


def _not_up(error: CandidateFailed) -> SandboxError:
    why = f"({error.reason}): {error}"
    if "maximum limit" in str(error):
        why = (
            "within the limits of this shell, see ulimit -a: raise that of address space (-v) or lower judge.memory_mb"
        )
    return SandboxError(f"the sandbox did not come up {why}")


class Cell:
    """One sandboxed process around one candidate. Use as a context manager: leaving kills the whole process group."""

    def __init__(
        self,
        script: str,
        *,
        isolation: Isolation,
        gpu: bool | str = False,
        read_only: list[str] | None = None,
        writable: list[str] | None = None,
        environment: dict[str, str] | None = None,
        max_output_bytes: int = 1 << 16,
        prefix: list[str] | None = None,
        forked: bool = False,
    ) -> None:
        """``gpu`` as in `isolation.wrap`.

        Args:
            prefix: a program in the sandbox that starts the cell's own.
            forked: from a process that has imported all that the script does, where that can be done.
        """
        host, inside = socket.socketpair()
        self._socket, self._buffer = host, b""
        self._max_output_bytes = max_output_bytes
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the cell)
        self._is_up = self._has_candidate = False
        self.is_module = script == "module.py"
        read_only, writable = [str(INSIDE), *(read_only or [])], writable or []
        env = _ENVIRONMENT | (environment or {})
        enclose = functools.partial(wrap, isolation=isolation, read_only=read_only, writable=writable, gpu=gpu)
        self._process: ExecutedProcess | ForkedProcess
        try:
            if forked and can_fork(isolation):
                server = fork_server(script, env)
                self._process = ForkedProcess(server, enclose(["cat"]), inside.fileno(), self._stderr)
            else:
                python = [sys.executable, *python_flags(script), str(INSIDE / script), str(inside.fileno())]
                argv = enclose([*(prefix or []), *python], environment=env)
                self._process = ExecutedProcess(argv, env, inside.fileno(), self._stderr)
        except OSError as e:
            host.close()
            raise SandboxError(f"the sandbox could not be started: {e}") from e
        finally:
            inside.close()
        self._paths = {
            "readable": readable_paths(read_only, gpu=gpu),
            "writable": writable_paths(writable, isolation=isolation, gpu=gpu),
        }

    def __enter__(self) -> Cell:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it and everything that it started; safe to call twice."""
        if self._socket.fileno() < 0:
            return
        self._process.end()
        self._socket.close()
        self._stderr.close()

    def wait(self, timeout_s: float = _PREPARE_TIMEOUT_S) -> None:
        """Until its process has imported all that it needs. Raises SandboxError where it does not get there."""
        try:
            self._receive(timeout_s)
        except CandidateFailed as e:
            raise _not_up(e) from e
        self._is_up = True

    def start_device(self, timeout_s: float = _PREPARE_TIMEOUT_S) -> None:
        """Have a cell that is up make what it needs of the device already, without its tensors.

        Raises:
            SandboxError, DeviceError, DeviceFullError: as `prepare`.
        """
        try:
            self._socket.sendall(START_DEVICE)
            reply = self._receive(timeout_s)
        except (CandidateFailed, OSError) as e:
            raise SandboxError(f"the sandbox did not come up: {e}") from e
        self._check_device(reply)

    @property
    def is_silent(self) -> bool:
        """As one that waits is: with nothing to say, and alive."""
        return self._socket.fileno() >= 0 and not select.select([self._socket], [], [], 0)[0]

    def prepare(
        self, setup: dict[str, Any], shared_fd: int | None = None, timeout_s: float = _PREPARE_TIMEOUT_S
    ) -> list[str]:
        """Hand over the setup and wait until all is ready for the candidate, of which nothing has run yet.

        Args:
            shared_fd: of the memory that its tensors live in.

        Returns:
            Names of the guards in force.

        Raises:
            SandboxError, DeviceError, DeviceFullError: it did not come up, which is never the candidate's fault.
        """
        if not self._is_up:
            self.wait(timeout_s)
        try:
            self._hand_over(shared_fd)
            reply = self.request(setup | self._paths, timeout_s)
        except CandidateFailed as e:
            raise _not_up(e) from e
        self._check_device(reply)
        return [str(g) for g in reply["guards"]]

    @staticmethod
    def _check_device(reply: dict[str, Any]) -> None:
        if "harness_error" in reply:
            text = str(reply["harness_error"])[:500]
            error = DeviceFullError if "out of memory" in text.lower() else DeviceError
            raise error(f"the cell could not use its device: {text}")

    def _hand_over(self, shared_fd: int | None) -> None:
        try:
            socket.send_fds(self._socket, [SET_UP], [] if shared_fd is None else [shared_fd])
        except OSError:
            raise self._death() from None

    def load(self, timeout_s: float) -> dict[str, Any]:
        """Have the candidate loaded; its ``error``, if the reply has one, is for the caller. Raises as `request`."""
        self._has_candidate = True
        return self.request({}, timeout_s)

    def _send(self, message: dict[str, Any], timeout_s: float) -> None:
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            raise self._death() from None

    @staticmethod
    def raise_for(reply: dict[str, Any]) -> None:
        """Raises CandidateFailed where the reply says so, and where its reason is none that a cell gives."""
        if "error" in reply:
            reason = reply.get("reason", "exception")
            if not isinstance(reason, str) or reason not in _REASONS:
                raise abuse()
            outcome = Outcome.INCORRECT if reason.startswith("wrong_") else Outcome.RUNTIME_ERROR
            raise CandidateFailed(outcome, reason, str(reply["error"])[:4000])

    def call(
        self,
        warm: list[int],
        calls: list[int],
        timeout_s: float,
        *,
        load_parameters: bool = False,
        late: bool = False,
        burst: int = 0,
        cold: bool = True,
    ) -> Calls:
        """Run the candidate on slots: ``warm`` untimed, then ``calls``; returns what the cell says of the latter.

        Args:
            late: the timed slots' inputs are completed in the stream just before the clock starts (see `slots`).
            burst: instead of timing, run all ``calls`` so many times in a row; the caller's clock tells how long.
            cold: empty a host's caches before each timed call, which takes longer than most of these.

        Raises:
            CandidateFailed: as `request`, or the candidate raised or returned what its outputs cannot be, or its calls
                took longer by what the cell says than the host waited for them.
        """
        command = {
            "warm": warm,
            "calls": calls,
            "load_parameters": load_parameters,
            "late": late,
            "burst": burst,
            "cold": cold,
        }
        start = time.monotonic_ns()
        reply = self.request(command, timeout_s)
        most_ns = _TIME_FACTOR * (time.monotonic_ns() - start) + _TIME_SLACK_NS
        self.raise_for(reply)
        ns = reply.get("ns")
        waited_ns = reply.get("waited_ns", [])
        if not _are_times(ns, len(calls), most_ns) or (waited_ns and not _are_times(waited_ns, len(calls), _MOST_NS)):
            raise abuse()
        return Calls([max(n, 1) / 1e3 for n in ns], [n / 1e3 for n in waited_ns])

    def request(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a command and return the reply.

        Raises:
            CandidateFailed: the cell died, ran out of time or answered nonsense.
        """
        self._send(message, timeout_s)
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise CandidateFailed(
                    Outcome.TIMEOUT, "run_timeout", f"it did not finish within the time limit of {timeout_s:.3g} s"
                )
            self._socket.settimeout(remaining)
            try:
                chunk = self._socket.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                chunk = b""
            if not chunk:
                raise self._death()
            self._buffer += chunk
            if len(self._buffer) > _MAX_REPLY_BYTES:
                raise abuse("it flooded the harness's channel")
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict) or self._buffer:
            raise abuse()
        return reply

    def finish(self, timeout_s: float) -> None:
        """Let it end by itself: a profiler around it writes its results only then.

        Raises:
            CandidateFailed: it did not end in time.
        """
        self._socket.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise CandidateFailed(Outcome.TIMEOUT, "run_timeout", "it did not end") from None

    def stderr_tail(self) -> str:
        """The last of what the candidate printed to stderr."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - self._max_output_bytes))
        return self._stderr.read().decode(errors="replace").strip()

    def _death(self) -> CandidateFailed:
        try:
            status = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.kill()
            return CandidateFailed(Outcome.RUNTIME_ERROR, "channel_closed", "it closed the harness's channel")
        number = -status if status < 0 else status - 128
        said = self.stderr_tail()
        if number in {s.value for s in SIGNALS}:
            reason, text = how_it_was_killed(signal.Signals(number), said)
            return CandidateFailed(Outcome.RUNTIME_ERROR, reason, with_hint(text))
        said = (without_harness(said) if self._has_candidate else said)[-MAX_WORDS:]
        if "MemoryError" in said or "bad_alloc" in said:
            return CandidateFailed(Outcome.RUNTIME_ERROR, "out_of_memory", "it asked for more memory than the limit")
        text = f"the process exited with status {status} in mid-run\n{said}".strip()
        return CandidateFailed(Outcome.RUNTIME_ERROR, "early_exit", with_hint(text))

    def held_bytes(self) -> int | None:
        """Of memory that it keeps to itself, read from outside; None when it cannot be read."""
        return held_bytes(self._process.pid)

    def waited_us(self) -> float | None:
        """How long its threads have waited for a core, read from outside; None when it cannot be read."""
        return waited_us(self._process.pid)

    def cpu_seconds(self) -> float | None:
        """CPU time of the innermost process with all its threads, read from outside; None when it cannot be read."""
        pid = self._process.pid
        if pid is None:
            return None
        try:
            return time.clock_gettime((~pid << 3) | 2)
        except OSError:
            return None
