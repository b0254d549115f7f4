"""What an install without extras lacks, in one sentence."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from kevin.core.errors import UsageError

_MARKED = re.compile(r"([\w.-]+).*;.*\bextra == ['\"](\w+)['\"]")


@functools.cache
def extras() -> dict[str, list[str]]:
    """Those of pyproject.toml, each with the modules that come with it alone; none where kevin runs uninstalled."""
    from importlib.metadata import PackageNotFoundError, requires  # it takes longer than all else of a start

    found: dict[str, list[str]] = {}
    with suppress(PackageNotFoundError):
        for line in requires("kevin-study") or ():
            if marked := _MARKED.match(line):
                found.setdefault(marked[2], []).append(marked[1].replace("-", "_"))
    return found


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """The sentence for a module that an extra brings; None for any other."""
    module = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in extras().items() if module in modules), None)
    return _sentence("this command", module, extra) if extra else None


def require_extra(extra: str, what: str, *modules: str) -> None:
    """Raises UsageError when one of the modules that ``what`` needs is not installed."""
    for module in modules:
        if find_spec(module) is None:
            raise UsageError(_sentence(what, module, extra))


def step(command: Callable[..., None]) -> Callable[..., None]:
    """A command of the study, which says at once that the study is not installed rather than after some work."""

    @functools.wraps(command)
    def checked(*args: Any, **options: Any) -> None:
        require_extra("study", "this command", *extras().get("study", ()))
        command(*args, **options)

    return checked


def _sentence(what: str, module: str, extra: str) -> str:
    return f"{what} needs {module}, which is not installed: pip install 'kevin-study[{extra}]'"
