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
        """Append the lines of ``other``."""
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

    def text(self, *mistakes: str) -> str:
        """All lines; the first line that can make a mistake does, one mistake a line.

        Raises:
            ValueError: no line is left for the first mistake. Further ones that find none are left out.
        """
        lines, waiting = [], list(mistakes)
        for depth, right, wrong in self._lines:
            line: str | None = right
            if (mistake := next((m for m in waiting if m in wrong), None)) is not None:
                line = wrong[mistake]
                waiting.remove(mistake)
            if line is not None:
                lines.append("  " * depth + line)
        if mistakes and mistakes[0] in waiting:
            raise ValueError(f"no line of this kernel can make the mistake {mistakes[0]}")
        return "\n".join(lines) + "\n"
