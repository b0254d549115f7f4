"""Source text under construction: lines that know how they look when a given mistake is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Code:
    """Lines with their indentation; a line may carry, by mistake, the text that stands there instead (None: none)."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str, dict[str, str | None]]] = []
        self._depth = 0

    def add(self, text: str, **wrong: str | None) -> None:
        """A line; a mistake whose text would be the same is none."""
        self._lines.append((self._depth, text, {m: w for m, w in wrong.items() if w != text}))

    def extend(self, other: Code) -> None:
        self._lines += [(self._depth + depth, text, wrong) for depth, text, wrong in other._lines]

    @contextmanager
    def block(self, head: str, **wrong: str) -> Iterator[None]:
        """``head`` and an opening brace, what is added inside, and the closing brace."""
        self.add(head + " {", **{m: t + " {" for m, t in wrong.items()})
        with self.indented():
            yield
        self.add("}")

    @contextmanager
    def indented(self) -> Iterator[None]:
        """What is added inside stands one step to the right."""
        self._depth += 1
        yield
        self._depth -= 1

    def mistakes(self) -> tuple[str, ...]:
        """Mistakes that some line can make, in order of their first line."""
        return tuple(dict.fromkeys(m for _, _, wrong in self._lines for m in wrong))

    def text(self, mistake: str | None = None) -> str:
        """All lines; the first one that can make the mistake does. Raises ValueError where none can."""
        lines = []
        is_made = mistake is None
        for depth, right, wrong in self._lines:
            line: str | None = right
            if not is_made and mistake in wrong:
                line, is_made = wrong[mistake], True
            if line is not None:
                lines.append("  " * depth + line)
        if not is_made:
            raise ValueError(f"no line of this kernel can make the mistake {mistake}")
        return "\n".join(lines) + "\n"
