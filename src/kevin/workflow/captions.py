"""What `snakemake --report` says of each table and figure: one file each in rules/captions, named as what it is of.

``rules/captions/tables/level1.rst`` belongs to ``tables/level1.csv``, ``figures/turns.rst`` to ``figures/turns.png``,
``pages/report.rst`` to ``report.html``. It begins with ``:title:``, the name that people read, and ``:category:``, the
report's section; after an empty line comes the caption.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kevin.core.errors import DataError
from kevin.core.types import Frozen

CATEGORIES = ("Tables", "Figures", "Training", "Turns", "Search", "Report")


class Caption(Frozen):
    title: str
    category: str
    text: str


def read_captions(folder: Path) -> dict[str, Caption]:
    """All captions below ``folder``, by ``tables/<name>``, ``figures/<name>``, ``pages/<name>``. Raises DataError."""
    files = sorted(folder.glob("*/*.rst"))
    return {f"{path.parent.name}/{path.stem}": _read(path) for path in files}


def _read(path: Path) -> Caption:
    head, _, text = path.read_text().partition("\n\n")
    fields = dict(re.findall(r"^:(\w+): *(.+)$", head, re.MULTILINE))
    text = " ".join(text.split())
    if fields.keys() != {"title", "category"} or not text:
        raise DataError(f"{path}: expected :title: and :category:, an empty line, and the caption")
    if fields["category"] not in CATEGORIES:
        raise DataError(f"{path}: no category {fields['category']!r}; there are {', '.join(CATEGORIES)}")
    return Caption(title=fields["title"], category=fields["category"], text=text)


def caption_key(output: str) -> str:
    """Under which name the caption of an output file stands."""
    path = PurePosixPath(output)
    return f"{'pages' if path.suffix == '.html' else path.parent.name}/{path.stem}"


def caption_of(captions: Mapping[str, Caption], output: str) -> Caption:
    """Of an output file of the workflow. Raises DataError with the file to write where there is none."""
    key = caption_key(output)
    if key not in captions:
        raise DataError(f"{output} has no caption: write rules/captions/{key}.rst (see kevin.workflow.captions)")
    return captions[key]


def labels_of(captions: Mapping[str, Caption], output: str) -> dict[str, str]:
    """What the report's list says of an output file. Raises DataError as `caption_of`."""
    kind = caption_key(output).partition("/")[0]
    return {"result": caption_of(captions, output).title, "form": kind.removesuffix("s")}
