"""A kernel as it comes from outside, a file or a line of one: in which dialect and language it is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from kevin.core.errors import UsageError

if TYPE_CHECKING:
    from kevin.core.protocol import JudgeProtocol
    from kevin.core.types import Dialect, Kernel, Language

DialectChoice = Literal["auto", "c_abi", "load_inline"]


def guess_dialect(source: str, name: str, choice: DialectChoice) -> Dialect:
    """The dialect of a candidate by its file's ending, else by what it holds. ``name`` may be without an ending."""
    if choice != "auto":
        return choice
    ending = Path(name).suffix
    if ending == ".py":
        return "load_inline"
    if ending in (".cpp", ".cc", ".cxx", ".cu"):
        return "c_abi"
    is_python = "class ModelNew" in source or "import torch" in source
    return "load_inline" if is_python else "c_abi"


_FILE_NAME = re.compile(r"(?!#|//|/\*)[^\n;{}()<>\"']+\.(?:py|cpp|cc|cxx|c|cu|cuh|h|hpp|hip|txt)", re.IGNORECASE)


def refuse_file_name(source: str, name: str) -> None:
    """Raises UsageError where a caller gives the name of a file in place of its text."""
    if _FILE_NAME.fullmatch(source.strip()):
        raise UsageError(f"{name}: {source.strip()!r} is the name of a file, whose text is wanted here")


def check_text(source: str, name: str) -> str:
    """``source`` without a byte order mark. Raises UsageError for half of a surrogate pair, which JSON can carry."""
    try:
        source.encode()
    except UnicodeEncodeError as e:
        line, half = source.count("\n", 0, e.start) + 1, ascii(source[e.start])
        raise UsageError(f"{name}, line {line}: {half} is half of a surrogate pair, which is no text") from None
    return source.removeprefix("\ufeff")


def make_kernel(
    source: str, name: str, dialect: DialectChoice, protocol: JudgeProtocol, language: Language | None = None
) -> Kernel:
    """The candidate, in the device's language unless another is named.

    Raises:
        UsageError: CUDA for a CPU, an unknown dialect or language, or what is no text.
    """
    from kevin.core.types import Kernel, Language  # pydantic takes a moment, which `kevin --help` need not

    if dialect not in get_args(DialectChoice):
        raise UsageError(f"dialect {dialect!r}: there are {', '.join(get_args(DialectChoice))}")
    if language not in (None, *get_args(Language)):
        raise UsageError(f"language {language!r}: there are {', '.join(get_args(Language))}")
    if protocol.device == "cpu" and (Path(name).suffix == ".cu" or language == "cuda"):
        raise UsageError(f"{name or 'kernel'}: a CUDA kernel needs device cuda (on the command line: --device cuda)")
    source = check_text(source, name or "kernel")
    return Kernel(dialect=guess_dialect(source, name, dialect), language=language or protocol.language, source=source)
