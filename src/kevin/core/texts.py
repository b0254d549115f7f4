"""Texts as people and their editors write them, read alike everywhere; and their lines."""

from __future__ import annotations

import codecs
import io
import tokenize
from os import PathLike
from pathlib import Path

from kevin.core.errors import UsageError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read_text(path: str | PathLike[str], kind: str = "file") -> str:
    """A text file: UTF-8, what its byte order mark says, or, of a Python module, what its coding line says (PEP 263).

    The mark is not part of the text, and lines end with a line feed. Raises UsageError naming the file; ``kind`` says
    what is missed where there is none.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such {kind}") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: cannot be read: a folder, not a file") from None
    except OSError as e:
        raise UsageError(f"{path}: cannot be read: {e.strerror}") from None
    try:
        text = data.decode(_encoding(data, is_python=Path(path).suffix == ".py"))
    except (UnicodeDecodeError, LookupError, SyntaxError) as e:
        raise UsageError(f"{path}: not a text file ({e}); save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _encoding(data: bytes, *, is_python: bool) -> str:
    """Raises SyntaxError for a coding line that names no encoding."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    return tokenize.detect_encoding(io.BytesIO(data).readline)[0] if is_python else "utf-8"


def split_lines(text: str) -> list[str]:
    """The lines of a text, which end at a line feed alone: `str.splitlines` ends them at U+2028 and others, too, which
    may stand in a kernel, and so in a line of JSON.
    """
    return text.removesuffix("\n").split("\n") if text else []
