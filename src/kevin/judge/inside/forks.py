"""A fork server's end of its channel: a request comes with descriptors, and each goes to a child of its own.

Standard library only: it runs beside a candidate's harness and, outside of any sandbox, where eager PyTorch is timed.
"""

import os
import signal
import socket
import traceback

_LENGTH_BYTES = 8


def framed(content: bytes) -> bytes:
    """As the other end sends it."""
    return len(content).to_bytes(_LENGTH_BYTES, "little") + content


def _receive(source: socket.socket, num_fds: int) -> "tuple[bytes, list[int]] | None":
    """A request and its descriptors; None when the other end is closed."""
    length, fds, *_ = socket.recv_fds(source, _LENGTH_BYTES, num_fds)
    if len(length) < _LENGTH_BYTES:
        return None
    content, num_bytes = b"", int.from_bytes(length, "little")
    while len(content) < num_bytes:
        chunk = source.recv(num_bytes - len(content))
        if not chunk:
            return None
        content += chunk
    return content, list(fds)


def serve(source: socket.socket, num_fds: int, work) -> None:
    """Fork for every request, until the other end is closed; ``work(content, fds)`` is all that a child does."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while (request := _receive(source, num_fds)) is not None:
        content, fds = request
        if os.fork() == 0:
            try:
                source.close()
                work(content, fds)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        for fd in fds:
            os.close(fd)
