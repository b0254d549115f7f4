"""What `snakemake --report` and docs/targets.md say of each table and figure: one file each in rules/captions, named as
what it is of.

``rules/captions/tables/level1.rst`` belongs to ``tables/level1.csv``, ``figures/turns.rst`` to ``figures/turns.png``,
``pages/report.rst`` to ``report.html``. It begins with ``:title:``, the name that people read, and ``:category:``, the
report's section; then, where it is so, ``:config:``, the configuration that is laid over the laptop's to make it, and
``:needs:``, a key that must be set besides. After an empty line comes the caption.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import yaml

from kevin.core.errors import DataError
from kevin.core.types import Frozen

CATEGORIES = ("Tables", "Figures", "Training", "Turns", "Search", "Report")


class Caption(Frozen):
    title: str
    category: str
    text: str
    config: str | None = None
    needs: str | None = None


def read_captions(folder: Path) -> dict[str, Caption]:
    """All captions below ``folder``, by ``tables/<name>``, ``figures/<name>``, ``pages/<name>``. Raises DataError."""
    files = sorted(folder.glob("*/*.rst"))
    return {f"{path.parent.name}/{path.stem}": _read(path) for path in files}


def _read(path: Path) -> Caption:
    head, _, text = path.read_text("utf-8").partition("\n\n")
    fields = dict(re.findall(r"^:(\w+): *(.+)$", head, re.MULTILINE))
    text = " ".join(text.split())
    if not {"title", "category"} <= fields.keys() <= Caption.model_fields.keys() - {"text"} or not text:
        raise DataError(f"{path}: expected :title: and :category:, an empty line, and the caption")
    if fields["category"] not in CATEGORIES:
        raise DataError(f"{path}: no category {fields['category']!r}; there are {', '.join(CATEGORIES)}")
    return Caption(**fields, text=text)


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


# --- docs/targets.md ----------------------------------------------------------------------------------------------

_ENDINGS = {"tables": "tables/{}.csv", "figures": "figures/{}.png", "pages": "{}.html"}
_HEAD = """# Every file of the study, and the command that makes it

Generated from the captions in `rules/captions` (`make schema`). A command makes what is missing before its file and
nothing else; `snakemake --dry-run FILE` says what that would be. Each figure has a `.pdf` and, as `.csv`, exactly what
was plotted; each table stands as `.md` and `.tex` beside its `.csv`. At another scale the folder is that of its
configuration: `snakemake --configfile config/gpu.yaml results/gpu/tables/primary.csv`. With
`search: {compared: [parallel, serial]}` the page has the search's table and figure too.
"""


def target_of(key: str, caption: Caption, configs: Path) -> tuple[str, str]:
    """File and command of what a caption is of.

    Args:
        configs: folder of the configurations, which say where results go.
    """
    kind, _, name = key.partition("/")
    overlay = f"config/{caption.config}.yaml" if caption.config else None
    results = "results"
    if overlay is not None:
        results = str(yaml.safe_load((configs / f"{caption.config}.yaml").read_text("utf-8")).get("results", results))
    file = f"{results}/{_ENDINGS[kind].format(name)}"
    return file, f"snakemake {file}" + (f" --configfile {overlay}" if overlay else "")


def targets_page(captions: Mapping[str, Caption], configs: Path) -> str:
    """docs/targets.md: a table of each category, then what has no caption."""
    lines = [_HEAD]
    for category in CATEGORIES:
        lines += [f"## {category}\n", "| file | command | what |", "|---|---|---|"]
        for key, caption in captions.items():
            if caption.category == category:
                file, command = target_of(key, caption, configs)
                needs = f" Needs `{caption.needs}`." if caption.needs else ""
                lines.append(f"| `{file}` | `{command}` | {caption.title}. {caption.text}{needs} |")
        lines.append("")
    lines += ["## To publish\n", "| file | command | what |", "|---|---|---|"]
    what = "Answers, kernels, tasks and all else of which others make each table again and judge each kernel again."
    lines.append(f"| `results/published` | `snakemake results/published` | {what} |")
    return "\n".join(lines) + "\n"
