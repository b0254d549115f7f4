"""The report: one HTML page that holds everything, opens from a file and asks no network for anything.

What models wrote is untrusted text: Jinja escapes what stands in the page, the viewer's data is JSON that cannot leave
its element and is only ever shown as text, and a content security policy lets no other script run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pandas as pd
import yaml
from markupsafe import Markup

from kevin.core.config import Study
from kevin.core.files import read_columns, read_metadata, read_table, read_tasks, write_text
from kevin.report.cells import Table, number_cell, percent, times
from kevin.report.claims import EFFECT, LEVEL, NOT_MEASURED, NOT_SHOWN, REFUTED, SHOWN
from kevin.report.display import display_table
from kevin.report.figures import files_by_policy
from kevin.report.figures.captions import TITLES, caption
from kevin.report.findings import findings
from kevin.report.notes import read_note
from kevin.report.paper import OURS
from kevin.report.parts import ALL_TASKS
from kevin.report.recipes import recipes
from kevin.report.scores import CEILING, policy_label, read_scores, split_label
from kevin.report.tables import EAGER
from kevin.report.trajectories import best_in_files
from kevin.report.viewer import embed_json, viewer_data

_TEMPLATES = Path(__file__).parent / "templates"
_MIME = {".png": "image/png", ".pdf": "application/pdf", ".csv": "text/csv"}


class Tile(NamedTuple):
    """One headline number."""

    label: str
    value: str
    interval: str
    beside: list[str]
    """The same number of the other policies and of the ceiling."""


def make_report(
    out: Path,
    *,
    study: Study,
    tables: Sequence[Path],
    figures: Sequence[Path],
    scores: Sequence[Path],
    turns: Sequence[Path],
    tasks: Path,
    baselines: Path | None = None,
    summaries: Sequence[Path] = (),
) -> Path:
    """Write the page. Returns ``out``.

    Args:
        tables: CSV files of `kevin.report.tables.make_table`, in the order of the page; other CSV
            files are shown whole.
        figures: PNG files of `kevin.report.figures.make_figure`, in the order of the page.
        turns: ``<policy>-<split>/turns.parquet``; of each task and policy the viewer holds the best
            ``report.viewer_trajectories``.
        summaries: of the trainings behind the page, see `kevin.report.notes`.
    """
    frames = {path.stem: read_table(path) for path in tables}
    shown = {path.stem: (display_table(path.stem, frames[path.stem], study), data_uri(path)) for path in tables}
    primary, claims = shown.pop("primary", None), shown.pop("claims", None)
    note = read_note(summaries, study, scores)
    page = _environment().get_template("report.html.j2")
    script = "\n".join((_TEMPLATES / f"{part}.js").read_text() for part in ("tables", "viewer", "search"))
    text = page.render(
        study=study,
        note=note,
        facts=_facts(read_scores(scores, study), study),
        headline=_headline(frames, study),
        findings=findings(frames["primary"], frames["claims"], study) if claims and primary else [],
        primary=primary,
        claims=claims,
        verdicts=_verdicts(frames["claims"], claims[0]) if claims else [],
        tables=list(shown.values()),
        figures=[_figure(path, note) for path in figures],
        viewer=Markup(embed_json(_viewer(turns, tasks, study))),
        machine=_machine(scores),
        files=[_file_row(path, kind) for path, kind in _provenance_files(scores, turns, tasks, baselines)],
        config=yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
        style=Markup((_TEMPLATES / "report.css").read_text()),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    write_text(out, text)
    return out


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def data_uri(path: Path) -> str:
    """The file's content as a URI."""
    return f"data:{_MIME[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"


# --- headline -----------------------------------------------------------------------------------------------------


def _facts(scores: pd.DataFrame, study: Study) -> dict[str, Any]:
    """Numbers of the first paragraph."""
    real = scores[scores["policy"] != CEILING]
    return {
        "num_tasks": real["task_id"].nunique(),
        "num_turns": len(real),
        "num_missing": int(scores["outcome"].isna().sum()),
        "num_kernels": scores["kernel_digest"].nunique(),
        "policies": [policy_label(str(p), study) for p in real["policy"].unique()],
    }


_HEADLINES = (
    ("speedup_best", "mean speedup of the best kernel over PyTorch eager", times),
    ("fast_1_best", "tasks at least as fast as PyTorch eager", percent),
    ("correct_best", "tasks with a correct kernel", percent),
    ("correct_avg", "trajectories with a correct kernel", percent),
)


def _headline(frames: Mapping[str, pd.DataFrame], study: Study) -> list[tuple[str, str, list[Tile]]]:
    """(level, policy, tiles) for each level table: the last recipe of ``evaluate``, with the others beside it."""
    cards = []
    for name, frame in frames.items():
        if not name.startswith("level"):
            continue
        rows = frame[(frame["source"] == OURS) & (frame["baseline"] == EAGER) & (frame["subset"] == ALL_TASKS)]
        by_policy = rows.drop_duplicates("policy", keep="last").set_index("policy")  # all seeds together stand last
        present = [r.policy for r in recipes(study.evaluate, study) if r.policy in by_policy.index]
        if not present:
            continue
        numbers: dict[Any, dict[Any, Any]] = by_policy.to_dict("index")
        main, others = numbers[present[-1]], [*present[:-1], CEILING]
        tiles = []
        for column, label, show in _HEADLINES:
            if column not in by_policy.columns:
                continue
            beside = [
                f"{_short(p, study)} {show(numbers[p][column])}"
                for p in others
                if p in by_policy.index and not (p == CEILING and column.endswith("avg"))
            ]
            interval = number_cell(main[column], show, main[f"{column}_low"], main[f"{column}_high"]).note
            tiles.append(Tile(label, show(main[column]), interval, beside))
        title = f"{split_label(name)} · {main['num_tasks']:.0f} tasks"
        cards.append((title, str(main["label"]), tiles))
    return cards


def _short(policy: str, study: Study) -> str:
    return "ceiling" if policy == CEILING else policy_label(policy, study)


class Verdicts(NamedTuple):
    """The claims of one kind and one verdict, in short."""

    kind: str
    verdict: str
    means: str
    claims: list[tuple[str, str]]
    """Each with its numbers, ours and the paper's, or with the reason why there is none."""


_MEANS = {
    SHOWN: "our whole 95 % interval agrees",
    REFUTED: "our whole 95 % interval contradicts",
    NOT_SHOWN: "our 95 % interval allows both, or the clock does not tell",
    NOT_MEASURED: "nothing here to compare with it",
}


def _verdicts(frame: pd.DataFrame, table: Table) -> list[Verdicts]:
    """What was reproduced, what was not, and why, for the first screen: of effects, then of levels, every verdict, also
    one that no claim has."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {(k, v): [] for k in (EFFECT, LEVEL) for v in _MEANS}
    rows = [row for body in table.bodies for row in body.rows]
    for kind, row in zip(frame["kind"], rows, strict=True):
        claim, theirs, ours, verdict = row.cells[:4]
        if kind in (EFFECT, LEVEL):
            numbers = f"{ours.in_line}, paper {theirs.text}" if verdict.text != NOT_MEASURED else verdict.note
            if verdict.text == NOT_SHOWN:
                numbers += f"; {verdict.note.rpartition('; ')[2]}"
            found[kind, verdict.text].append((claim.text, numbers))
    return [Verdicts(kind, verdict, _MEANS[verdict], claims) for (kind, verdict), claims in found.items()]


# --- figures, viewer ----------------------------------------------------------------------------------------------


def _figure(path: Path, note: str | None) -> dict[str, Any]:
    siblings = [path.with_suffix(suffix) for suffix in (".csv", ".pdf")]
    return {
        "name": path.stem,
        "title": TITLES.get(path.stem, path.stem.replace("_", " ").capitalize()),
        "caption": caption(path.stem, note),
        "image": data_uri(path),
        "downloads": [(p.name, p.suffix[1:].upper(), data_uri(p)) for p in siblings if p.exists()],
        "diffs": _diffs(path.with_suffix(".csv")) if path.stem == "layernorm_case_study" else [],
    }


def _diffs(csv: Path) -> list[tuple[str, list[tuple[str, str]]]]:
    """Of a case study's turns: what changed in the kernel, as a title and lines with their kind (CSS class)."""
    frame = read_table(csv) if csv.exists() else pd.DataFrame()
    if "diff" not in frame:
        return []
    kinds = {"+": "line-add", "-": "line-del", "@": "line-hunk"}
    found = []
    for row in frame[frame["diff_to"].notna()].to_dict("records"):
        speedup = "" if pd.isna(row["speedup"]) else f", {times(row['speedup'])}"
        title = f"{row['label']}: turn {row['diff_to']:.0f} to {row['turn']:.0f} ({row['outcome']}{speedup})"
        changed = str(row["diff"]).split("\n")[2:] if isinstance(row["diff"], str) else ["the same kernel"]
        found.append((title, [(line, kinds.get(line[:1], "line-same")) for line in changed]))
    return found


def _viewer(turns: Sequence[Path], tasks: Path, study: Study) -> dict[str, Any]:
    files = files_by_policy(turns, study)
    best = best_in_files(files, study.report.viewer_trajectories)
    every = [path for paths in files.values() for path in paths]
    seen = {task for path in every for task in read_columns(path, "turns", ["task_id"])["task_id"]}
    return viewer_data(best, [task for task in read_tasks(tasks) if task.id in seen], study)


# --- provenance ---------------------------------------------------------------------------------------------------


def _machine(scores: Sequence[Path]) -> dict[str, str]:
    """Where the kernels were judged, from the rollouts behind the scores; differing values stand side by side."""
    found: dict[str, list[str]] = {}
    for path in scores:
        meta = read_metadata(path, "scores").get("rollouts", {})
        facts = {
            "Processor": meta.get("cpu"),
            "GPUs": ", ".join(f"{g.get('name')} (driver {g.get('driver')})" for g in meta.get("gpus") or ()) or "none",
            "Platform": meta.get("platform"),
            "Python": meta.get("python"),
            "Packages": ", ".join(f"{k} {v}" for k, v in (meta.get("versions") or {}).items()),
            "Commit": meta.get("commit"),
        }
        for key, value in facts.items():
            if value and value not in found.setdefault(key, []):
                found[key].append(str(value))
    return {key: " / ".join(values) for key, values in found.items() if values}


def _provenance_files(
    scores: Sequence[Path], turns: Sequence[Path], tasks: Path, baselines: Path | None
) -> list[tuple[Path, str]]:
    files = [(tasks, "tasks"), *((p, "turns") for p in turns), *((p, "scores") for p in scores)]
    return files if baselines is None else [*files, (baselines, "baselines")]


def _file_row(path: Path, kind: str) -> dict[str, str]:
    meta = read_metadata(path, kind)
    return {
        "name": str(path) if not path.is_absolute() else f"{path.parent.name}/{path.name}",
        "created": str(meta.get("created") or "–"),
        "commit": str(meta.get("commit") or "–"),
        "config": str(meta.get("config_digest") or "–"),
    }
