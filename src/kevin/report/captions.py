"""What people read of each table, figure and page, all in ``captions.yaml``; and docs/targets.md, made of it.

The page, the tables' Markdown and LaTeX, the figures' titles, and `snakemake --report` read the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath

import yaml

from kevin.core.errors import DataError
from kevin.core.types import Frozen

CATEGORIES = ("Tables", "Figures", "Training", "Turns", "Search", "Report")
FILE = Path(__file__).with_name("captions.yaml")


class Caption(Frozen):
    title: str
    """Of a figure the question that it answers."""
    category: str
    """Section of the report of Snakemake and of docs/targets.md."""
    text: str
    reading: str = ""
    """How a table is read."""
    config: str | None = None
    needs: str | None = None


@cache
def captions() -> Mapping[str, Caption]:
    """All, by ``tables/<name>``, ``figures/<name>``, ``pages/<name>``."""
    return {key: Caption.model_validate(value) for key, value in yaml.safe_load(FILE.read_text("utf-8")).items()}


def caption_key(output: str) -> str:
    """Under which name the caption of an output file stands."""
    path = PurePosixPath(output)
    return f"{'pages' if path.suffix == '.html' else path.parent.name}/{path.stem}"


def caption_of(output: str) -> Caption:
    """Of an output file of the workflow. Raises DataError with the file to write it in where there is none."""
    key = caption_key(output)
    if key not in captions():
        raise DataError(f"{output} has no caption: write {key} in src/kevin/report/captions.yaml")
    return captions()[key]


def labels_of(output: str) -> dict[str, str]:
    """What the report's list says of an output file. Raises DataError as `caption_of`."""
    kind = caption_key(output).partition("/")[0]
    return {"result": caption_of(output).title, "form": kind.removesuffix("s")}


# --- docs/targets.md ----------------------------------------------------------------------------------------------

_ENDINGS = {"tables": "tables/{}.csv", "figures": "figures/{}.png", "pages": "{}.html"}
_HEAD = """# Every file of the study, and the command that makes it

Generated from `src/kevin/report/captions.yaml` (`make schema`), which says more of each. A command makes what is
missing before its file and nothing else; `snakemake --dry-run FILE` says what that would be. Each table stands as `.md`
and `.tex` beside its `.csv`, each figure as `.pdf` and, as `.csv`, exactly what was plotted. At another scale the
folder is that of its configuration: `snakemake results/gpu/tables/primary.csv --configfile config/gpu.yaml`. With
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


def targets_page(configs: Path) -> str:
    """docs/targets.md: a list of each category, then what has no caption."""
    lines = [_HEAD]
    for category in CATEGORIES:
        lines.append(f"## {category}\n")
        for key, caption in captions().items():
            if caption.category == category:
                _, command = target_of(key, caption, configs)
                needs = f"; needs `{caption.needs}`" if caption.needs else ""
                lines.append(f"- `{command}`: {caption.title}{needs}")
        lines.append("")
    lines.append("## To publish\n")
    lines.append("- `snakemake results/published`: Models, answers, kernels and tables, for others to use and check")
    return "\n".join(lines) + "\n"
