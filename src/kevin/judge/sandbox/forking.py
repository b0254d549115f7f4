"""The host's handle on a process that has imported what its children need, which takes seconds, and forks them."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence

from kevin.judge.inside.forks import framed

_DEATH_S = 0.5
"""Between a process's last sign and its exit status."""
_LAST_WORDS = 600


class ForkingProcess:
    """Ends with this process, or by `close`; its children do not end with it."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], folder: str | None = None) -> None:
        """``argv`` is given the number of its end of the channel as a last argument, ``folder`` is where it works."""
        self._socket, theirs = socket.socketpair()
        self._sending = threading.Lock()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        with theirs:
            self._process = subprocess.Popen(
                [*argv, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=environment,
                cwd=folder,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def request(self, content: bytes, fds: Sequence[int]) -> None:
        """Have a child work on this, with these descriptors. Raises OSError where nobody listens."""
        with self._sending:
            message = framed(content)
            sent = socket.send_fds(self._socket, [message], list(fds))
            self._socket.sendall(message[sent:])

    def words(self) -> str:
        """The last that it and its children wrote to stderr."""
        at = max(0, os.fstat(self._said.fileno()).st_size - _LAST_WORDS)
        return os.pread(self._said.fileno(), _LAST_WORDS, at).decode(errors="replace").strip()

    def last_words(self) -> str | None:
        """What it said when it died; None while it lives."""
        try:
            self._process.wait(_DEATH_S)
        except subprocess.TimeoutExpired:
            return None
        return self.words()

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()
        self._said.close()
