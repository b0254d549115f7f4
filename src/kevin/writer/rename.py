"""A kernel's text under other names of its tensors, the header's constants included."""

from __future__ import annotations

import re
from collections.abc import Mapping

_WORD = re.compile(r'"[^"\n]*"|(?<![\w.\"])[A-Za-z_]\w*')
"""Strings go as they are: those of asm statements have letters of their own."""
_CONSTANT = re.compile(r"(\w+?)_(d\d+|size)")
_MACRO = "#define PRAGMA("
"""Its argument is no tensor."""


def renamed(text: str, names: Mapping[str, str]) -> str:
    """``text`` with every tensor and its constants under the new name; variables that stand in the way give way.

    Args:
        names: by the name in ``text`` the new one.
    """
    words = set(_WORD.findall(text))
    new: dict[str, str] = {}
    for word in words:
        match = _CONSTANT.fullmatch(word)
        if word in names:
            new[word] = names[word]
        elif match and match[1] in names:
            new[word] = f"{names[match[1]]}_{match[2]}"
    given = set(new.values()) | set(names.values())
    for word in words - new.keys():
        if word in given:
            new[word] = _free(word, words | given)
    lines = (
        line if line.startswith(_MACRO) else _WORD.sub(lambda m: new.get(m.group(), m.group()), line)
        for line in text.split("\n")
    )
    return "\n".join(lines)


def _free(word: str, taken: set[str]) -> str:
    while word in taken:
        word += "_"
    return word
