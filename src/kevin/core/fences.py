"""A model's answer taken apart: its chain of thought, and its code blocks as CommonMark reads fences.

Lines end at a line feed alone. A fence within a comment or a string that is still open does not end its block.
"""

from __future__ import annotations

import itertools
import re
from typing import Literal, NamedTuple

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"

_WORDS = "think|thought|reason|reflect|rationale|monologue|deliberat|contemplat|ponder|brainstorm"
_NAME = rf"(?:\w{{1,20}}:)?(?:[\w-]{{0,20}}(?:{_WORDS})[\w-]{{0,20}}|analysis|scratch[_-]?pad|plan(?:ning)?|cot)"
_OPEN = re.compile(
    rf"<[|｜]?(?!end_)(?!{_NAME}_end[|｜]){_NAME}[|｜]?(?:\s[^<>\n]*)?>|\[think\w*\]|◁think▷"
    r"|<\|channel\|>(?:analysis|commentary)<\|message\|>|<unused94>(?=thought\n)|<\|channel>thought\b",
    re.IGNORECASE,
)
_CLOSE = re.compile(
    rf"<[|｜]?(?:/\s?|end_){_NAME}[|｜]?\s?>|<[|｜]{_NAME}_end[|｜]>|\[/think\w*\]|◁/think▷"
    r"|(?:<\|end\|>)?(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>|<unused95>|<channel\|>",
    re.IGNORECASE,
)
_TAG = re.compile(rf"(?P<closing>{_CLOSE.pattern})|{_OPEN.pattern}", re.IGNORECASE)
_LEADING = re.compile(r"[\s\ufeff]*")
_ALONE = re.compile(rf"^[ \t]*(?:{_CLOSE.pattern})[ \t]*$", re.MULTILINE | re.IGNORECASE)
_NESTED = re.compile(r"^ {0,3}(?:`{3,}|~{3,})[^`\s]", re.MULTILINE)
_QUOTED = re.compile(r"`[^`\n]*`")
_FENCE_LINE = re.compile(r"^ {0,3}(?:`{3,}[^`\n]*|~{3,}[^\n]*)$", re.MULTILINE)

_ITEM = r" *(?:[-*+]|\d{1,9}[.)]) +"
_CONTAINER = re.compile(rf"(?P<quotes>(?:(?:{_ITEM}| *)> ?)*)(?P<item>(?:{_ITEM})*)")
_MARKUP = r"(?:<[^<>`\n]{1,40}>[ \t]*)*"
"""Tags of a format, or of a model's own, on the line of a fence."""
_FENCE = re.compile(
    rf"(?P<indent> *)(?!{_OPEN.pattern}|{_CLOSE.pattern}){_MARKUP}(?P<fence>`{{3,}}|~{{3,}})(?P<info>[^\n]*)",
    re.IGNORECASE,
)
_TAB = 4
_OF_PYTHON = re.compile(r"""^(?:import|from|class|def) |\A\s*(?:\"{3}|'{3})""", re.MULTILINE)
_PYTHON_PARTS = re.compile(
    r"""\#[^\n]*|(?P<marks>\"{3}|'{3})(?:(?:[^\\]|\\.)*?(?P=marks)|(?P<open>.*))"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)
_C_PARTS = re.compile(
    r"""//[^\n]*|R"(?P<mark>[^()\s]{0,16})\((?:.*?\)(?P=mark)"|(?P<raw>.*))|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"""|/\*(?:.*?\*/|(?P<open>.*))""",
    re.DOTALL,
)
_MAX_INNER_FENCES = 4
_MAX_CLOSINGS = 16
"""Fences in one comment, and tags in a draft, that are looked beyond, which bounds a hostile answer's time."""


class Block(NamedTuple):
    info: str
    """What stands behind the opening fence."""
    code: str
    """Without what all its lines have of the opening fence's indentation; ends with a line feed unless it is empty."""
    end: int
    """Where the text behind the block begins."""


class Answer(NamedTuple):
    blocks: list[Block]
    """The complete ones behind the chain of thought."""
    start: int
    """Where the chain of thought ends."""
    cut: Literal["thought", "block"] | None
    """What was never closed."""


def read_answer(text: str) -> Answer:
    """The tags of a chain of thought count where the answer begins, and outside code where no sentence names them.

    Where a template has opened the thought, its end alone is in the text.
    """
    start, is_closed = 0, False
    while opening := _OPEN.match(text, _skip(text, start)):
        closing = _end_of_thought(text, opening.end())
        if closing is None:
            return Answer([], start, "thought")
        start, is_closed = closing.end(), True
    return _read(text, start, is_closed)


def split_thought(text: str) -> tuple[str, str]:
    """(chain of thought, answer), without the tags between them."""
    start = read_answer(text).start
    thought = text[:start].strip()
    if opening := _OPEN.match(thought):
        thought = thought[opening.end() :]
    closing = list(_CLOSE.finditer(thought))[-1:]
    return (thought[: closing[0].start()] if closing else thought).strip(), text[start:].strip()


def fenced(source: str, info: str) -> str:
    """``source`` as a code block, between fences that it does not hold itself."""
    longest = max((len(m[1]) for m in re.finditer(r"^ {0,3}(`{3,})", source, re.MULTILINE)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{info}\n{source.rstrip()}\n{fence}"


def _end_of_thought(text: str, start: int) -> re.Match[str] | None:
    """The first closing tag that does not stand in a line of a draft's code; of those alone, the first."""
    closings = list(itertools.islice(_CLOSE.finditer(text, start), _MAX_CLOSINGS))
    for closing in closings:
        line = text.rfind("\n", start, closing.start()) + 1 or start
        is_open = len(_FENCE_LINE.findall(text, start, closing.start())) % 2
        if not (is_open and text[line : closing.start()].strip()):
            return closing
    return closings[0] if closings else None


def _skip(text: str, position: int) -> int:
    found = _LEADING.match(text, position)
    return found.end() if found else position


def _read(text: str, start: int, is_closed: bool) -> Answer:
    blocks: list[Block] = []
    position, item = start, 0
    while position < len(text):
        end = _line_end(text, position)
        line = text[position:end]
        spaced = _spaced(line)
        container = _CONTAINER.match(spaced)
        assert container is not None, "both of its parts may be absent"
        if container["item"]:
            item = len(container["item"])
        elif line.strip() and len(spaced) - len(spaced.lstrip(" ")) < item:
            item = 0
        opening = _opening(spaced, container, item)
        if opening is not None:
            block = _block(text, end, opening, num_quotes=container["quotes"].count(">"))
            tags = [] if is_closed else list(_ALONE.finditer(text, position, block.end if block else len(text)))
            if tags:
                if (answer := _behind_draft(text, tags[-1].end())) is not None:
                    return answer
                is_closed = True
            if block is None:
                return Answer(blocks, start, "block")
            blocks += _unwrapped(block)
            position = block.end
            continue
        if (tag := _tag(line)) is None:
            position = end + 1
            continue
        is_closed = True
        position += tag.end()
        if tag["closing"]:
            blocks, start = [], position
            continue
        closing = _CLOSE.search(text, position)
        if closing is None:
            return Answer(blocks, start, "thought")
        position = closing.end()
    return Answer(blocks, start, None)


def _unwrapped(block: Block) -> list[Block]:
    """The block; of Markdown the blocks in it, as where a model puts its whole answer between fences."""
    if not block.info.lower().startswith(("markdown", "md")):
        return [block]
    inner = _read(f"{block.code}```\n", 0, is_closed=True).blocks  # fences as long as its own end it with their first
    return [kept._replace(end=block.end) for kept in inner] or [block]


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _spaced(line: str) -> str:
    """With spaces in place of the tabs that stand before its text and behind the marks of lists and quotations."""
    text = line.lstrip(" \t>-*+.)0123456789")
    head = line[: len(line) - len(text)]
    return head.expandtabs(_TAB) + text if "\t" in head else line


def _without_indent(line: str, num_columns: int) -> str:
    """Without so many columns of spaces and tabs at its beginning, where it has them."""
    column = 0
    for place, character in enumerate(line):
        if column >= num_columns or character not in " \t":
            return " " * max(0, column - num_columns) + line[place:]
        column += 1 if character == " " else _TAB - column % _TAB
    return ""


class _Opening(NamedTuple):
    indent: int
    fence: str
    info: str


def _opening(line: str, container: re.Match[str], item: int) -> _Opening | None:
    """An opening fence, by itself or at the beginning of a quotation or a list's item."""
    found = _FENCE.fullmatch(line, container.end())
    if found is None or (found["fence"][0] == "`" and "`" in found["info"]):
        return None
    indent = len(found["indent"]) + len(container["item"] or "")
    return _Opening(indent, found["fence"], found["info"].strip()) if indent <= item + 3 else None


def _block(text: str, position: int, opening: _Opening, *, num_quotes: int) -> Block | None:
    """The block whose opening fence ends at ``position``; None where it is never closed.

    Args:
        num_quotes: marks of quotations that all its lines begin with.
    """
    mark, length = opening.fence[0], len(opening.fence)
    closing = re.compile(rf" {{0,{opening.indent + 3}}}{mark}{{{length},}}\s*(?P<behind>{_MARKUP})")
    quotes = re.compile(rf"(?: *+> ?+){{{num_quotes}}}")
    following = re.compile(rf" {{0,3}}{mark}{{{length},}}[^`\s]")
    lines: list[str] = []
    doubted: list[Block] = []
    while position < len(text):
        position += 1
        end = _line_end(text, position)
        line = text[position:end]
        if (quote := quotes.match(line)) is None:
            break
        line = line[quote.end() :]
        if closed := closing.fullmatch(_spaced(line)):
            spaced = [_spaced(kept) for kept in lines if kept.strip()] if opening.indent else []
            indent = min([opening.indent, *(len(kept) - len(kept.lstrip(" ")) for kept in spaced)])
            code = "".join(f"{_without_indent(kept, indent)}\n" for kept in lines)
            block = Block(
                opening.info, code, end - len(closed["behind"]) if closed["behind"] else min(end + 1, len(text))
            )
            if not _is_unfinished(block):
                return block
            doubted.append(block)
        if doubted and (following.match(line) or len(doubted) > _MAX_INNER_FENCES):
            break
        lines.append(line)
        position = end
    return doubted[0] if doubted else None


def _is_unfinished(block: Block) -> bool:
    """Whether a comment or a string of several lines is open at its end."""
    is_python = block.info.lower().startswith("py") or (not block.info and _OF_PYTHON.search(block.code))
    parts = (_PYTHON_PARTS if is_python else _C_PARTS).finditer(block.code)
    return any(part.lastgroup in ("open", "raw") for part in parts)


def _behind_draft(text: str, start: int) -> Answer | None:
    """The answer behind a thought that ended within a block of its own; None where no block of it is whole."""
    answer = _read(text, start, is_closed=True)
    is_sound = answer.blocks and not any(_NESTED.search(block.code) for block in answer.blocks)
    return answer if is_sound else None


def _tag(line: str) -> re.Match[str] | None:
    """The first tag of a line of prose that is one, and not what a sentence is about."""
    if line.startswith("Summary:"):
        return None
    bare = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), line)
    for tag in _TAG.finditer(bare):
        before, after = bare[: tag.start()], bare[tag.end() :]
        if not before.strip() or not after.strip() or re.search(r"[^\s'\"(*]$", before):
            return tag
    return None
