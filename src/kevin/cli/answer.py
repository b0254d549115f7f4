"""`kevin answer`: the process behind `kevin.Judge` and `kevin serve`. Not for people."""

from __future__ import annotations

from typing import Annotated

import typer


def answer(fd: Annotated[int, typer.Option("--fd", help="An open socket: see kevin.api.answering.")]) -> None:
    """Judge what comes in over a socket. Started by `kevin.Judge`."""
    from kevin.api.answering import answer as serve_socket

    serve_socket(fd)
