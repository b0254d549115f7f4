"""Texts as people and their editors write them, read alike everywhere; their lines; and the JSON that we write."""

from __future__ import annotations

import codecs
import errno
import io
import json
import math
import os
import re
import select
import tokenize
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kevin.core.errors import UsageError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_PIPE_S = 5.0
_CODING = re.compile(rb"[ \t\f]*#.*?coding[:=]")
_ASCII = bytes(byte if byte < 128 else ord("?") for byte in range(256))
"""What stands beside the name of an encoding on its line is in that encoding, and Python reads the name first."""


def read_text(path: str | PathLike[str], kind: str = "file") -> str:
    """A text file: UTF-8, what its byte order mark says, or, of a Python module, what its coding line says (PEP 263).

    The mark is not part of the text, and lines end with a line feed. Raises UsageError naming the file, also of a pipe
    that nobody writes to; ``kind`` says what is missed where there is none.
    """
    try:
        data = _read_pipe(path) if Path(path).is_fifo() else Path(path).read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such {kind}") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: cannot be read: a folder, not a file") from None
    except OSError as e:
        raise UsageError(f"{path}: cannot be read: {e.strerror}") from None
    except ValueError as e:  # a zero byte, half of a surrogate pair
        raise UsageError(f"{str(path)!a}: not the name of a file: {e}") from None
    try:
        text = data.decode(_encoding(data, is_python=Path(path).suffix == ".py"))
    except (UnicodeDecodeError, LookupError, SyntaxError) as e:
        raise UsageError(f"{path}: not a text file ({e}); save it as UTF-8") from None
    if "\0" in text:
        raise UsageError(f"{path}: not a text file (it holds zero bytes, as UTF-16 does); save it as UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_pipe(path: str | PathLike[str]) -> bytes:
    """All that comes. Raises OSError where nobody has opened it to write for a while."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        first = b""
        if not waiting.poll(1000 * _PIPE_S):
            said = pipe.read(1)
            if said == b"":  # None: there is a writer, who has said nothing yet
                raise OSError(errno.EPIPE, "a pipe that nobody writes to, not a file")
            first = said or b""
        os.set_blocking(descriptor, True)
        return first + pipe.readall()


def _encoding(data: bytes, *, is_python: bool) -> str:
    """Raises SyntaxError for a coding line that names no encoding."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    if not is_python:
        return "utf-8"
    lines = (line.translate(_ASCII) if _CODING.match(line) else line for line in io.BytesIO(data))
    return tokenize.detect_encoding(lambda: next(lines, b""))[0]


def split_lines(text: str) -> list[str]:
    """The lines of a text, which end at a line feed alone: `str.splitlines` ends them at U+2028 and others, too, which
    may stand in a kernel, and so in a line of JSON.
    """
    return text.removesuffix("\n").split("\n") if text else []


def digits(value: float, num: int) -> str:
    """A number by so many that count: 120, not 1.2e+02."""
    return f"{float(f'{value:.{num}g}'):g}"


def parse_json(text: str | bytes) -> Any:
    """What a text of JSON says. Raises ValueError, also for a key set a second time, where Python's takes the last."""
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    once((key, key) for key, _ in pairs)
    return dict(pairs)


def once(keys: Iterable[tuple[Any, Any]]) -> None:
    """Raises ValueError for the second of two equal keys, by the name beside it."""
    seen = set()
    for key, name in keys:
        if key in seen:
            raise ValueError(f"{name} is set a second time")
        seen.add(key)


def strict_json(value: Any, **options: Any) -> str:
    """JSON that every parser reads: infinities and what is not a number are null. ``options``: of `json.dumps`."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
