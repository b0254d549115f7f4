"""The report: one HTML page that holds everything, opens from a file and asks no network for anything.

What models wrote is untrusted text: Jinja escapes what stands in the page, the viewer's data is JSON that cannot leave
its element and is only ever shown as text, and a content security policy lets no other script run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import yaml
from markupsafe import Markup

from kevin.core.config import Study
from kevin.core.errors import UsageError
from kevin.core.files import read_columns, read_metadata, read_table, read_tasks, write_text
from kevin.report import show
from kevin.report.budgets import SINGLE
from kevin.report.captions import NOTE, caption_of, read_note
from kevin.report.catalogue import TABLES
from kevin.report.claims import EFFECT, LEVEL, MIN_TASKS, NOT_MEASURED, NOT_SHOWN, PRIMARY, REFUTED, SHOWN
from kevin.report.forms import full_caption, in_line, interval, is_missing, page_table, records, times
from kevin.report.paper import OURS
from kevin.report.primary import COMPILED, ROOM
from kevin.report.primary import PRIMARY as OF_TABLE
from kevin.report.recipes import CEILING, policy_label
from kevin.report.scores import read_scores
from kevin.report.viewer import best_in_files, embed_json, files_by_policy, viewer_data

_TEMPLATES = Path(__file__).parent / "templates"
_MIME = {".png": "image/png", ".pdf": "application/pdf", ".csv": "text/csv"}


def make_report(
    out: Path,
    *,
    study: Study,
    tasks: Path,
    tables: Sequence[Path] = (),
    figures: Sequence[Path] = (),
    scores: Sequence[Path] = (),
    turns: Sequence[Path] = (),
    baselines: Path | None = None,
    summaries: Sequence[Path] = (),
) -> Path:
    """Write the page. Returns ``out``.

    Args:
        tables: CSV files of `kevin.report.catalogue.make_table`, in the order of the page.
        figures: PNG files of `kevin.report.catalogue.make_figure`, in the order of the page.
        turns: ``<policy>-<split>/turns.parquet``; of each task and policy the viewer holds the best
            ``report.viewer_trajectories``.
        summaries: of the trainings behind the page, see `kevin.report.captions`.
    """
    note = read_note(summaries, study, scores)
    frames = {path.stem: read_table(path).drop(columns=NOTE, errors="ignore") for path in tables}
    shown = {path.stem: _table(path, frames[path.stem], study) for path in tables}
    drawn = {path.stem: _figure(path) for path in figures}
    primary, claims = shown.pop("primary", None), shown.pop("claims", None)
    script = "\n".join((_TEMPLATES / f"{part}.js").read_text("utf-8") for part in ("tables", "viewer", "search"))
    text = (
        templates()
        .get_template("report.html.j2")
        .render(
            study=study,
            note=note,
            facts=_facts(read_scores(scores, study), study),
            findings=findings(frames["primary"], frames["claims"], study) if claims and primary else [],
            primary=primary,
            primary_figure=drawn.pop("primary", None),
            claims=claims,
            verdicts=verdicts(frames["claims"], study) if claims else [],
            tables=list(shown.values()),
            figures=list(drawn.values()),
            viewer=Markup(embed_json(_viewer(turns, tasks, study))),
            machine=_machine(scores),
            files=_files(tasks=[tasks], turns=turns, scores=scores, baselines=[baselines] if baselines else []),
            config=yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
            style=Markup((_TEMPLATES / "report.css").read_text("utf-8")),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )
    write_text(out, text)
    return out


def templates() -> jinja2.Environment:
    """Of the page, in which everything is escaped, and of texts."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=jinja2.select_autoescape(["html.j2"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def data_uri(path: Path) -> str:
    """The file's content as a URI."""
    return f"data:{_MIME[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"


# --- first screen -------------------------------------------------------------------------------------------------


def _facts(scores: pd.DataFrame, study: Study) -> dict[str, Any]:
    """Numbers of the first paragraph."""
    real = scores[scores["policy"] != CEILING]
    return {
        "num_tasks": real["task_id"].nunique(),
        "num_turns": len(real),
        "num_missing": int(scores["outcome"].isna().sum()),
        "policies": [policy_label(str(p), study) for p in real["policy"].unique()],
    }


_MEANS = {
    SHOWN: "our whole 95 % interval agrees",
    REFUTED: "our whole 95 % interval contradicts",
    NOT_SHOWN: "our 95 % interval allows both, or the clock does not tell",
    NOT_MEASURED: "nothing here to compare with it",
}


def verdicts(frame: pd.DataFrame, study: Study) -> list[dict[str, Any]]:
    """What was reproduced, what was not, and why, for the first screen: of effects, then of levels, every verdict, also
    one that no claim has, with its claims; each of these with its numbers, ours and the paper's, or with the reason why
    there is none."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {(k, v): [] for k in (EFFECT, LEVEL) for v in _MEANS}
    for row, cells in zip(records(frame), show.claims(frame, study).cells.to_dict("records"), strict=True):
        if row["kind"] in (EFFECT, LEVEL):
            verdict, _, why = cells["Verdict"].partition("\n")
            paper = cells["Paper"].partition("\n")[0]
            numbers = f"{in_line(cells['Ours'])}, paper {paper}" if verdict != NOT_MEASURED else why
            if verdict == NOT_SHOWN:
                numbers += f"; {why.rpartition('; ')[2]}"
            found[row["kind"], verdict].append((row["claim"], numbers))
    return [{"kind": k, "verdict": v, "means": _MEANS[v], "claims": claims} for (k, v), claims in found.items()]


# --- tables, figures, viewer --------------------------------------------------------------------------------------


def _table(path: Path, frame: pd.DataFrame, study: Study) -> dict[str, Any]:
    if path.stem not in TABLES:
        raise UsageError(f"{path}: the page has no table {path.stem!r}; there are {', '.join(TABLES)}")
    said, shown = caption_of(f"tables/{path.name}"), TABLES[path.stem].show(frame, study)
    return {
        "name": path.stem,
        "title": said.title,
        "caption": full_caption(frame, shown, said),
        "filters": list(shown.filters),
        "html": Markup(page_table(shown, path.stem)),
        "file": data_uri(path),
    }


def _figure(path: Path) -> dict[str, Any]:
    siblings = [path.with_suffix(suffix) for suffix in (".csv", ".pdf")]
    said = caption_of(f"figures/{path.name}")
    return {
        "name": path.stem,
        "title": said.title,
        "caption": said.text,
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
    best = {policy: best_in_files(own, study.report.viewer_trajectories) for policy, own in files.items()}
    every = [path for paths in files.values() for path in paths]
    seen = {task for path in every for task in read_columns(path, "turns", ["task_id"])["task_id"]}
    return viewer_data(best, [task for task in read_tasks(tasks) if task.id in seen], study)


# --- provenance ---------------------------------------------------------------------------------------------------


def _machine(scores: Sequence[Path]) -> dict[str, str]:
    """Where the kernels were judged, from the rollouts behind the scores; differing values stand side by side."""
    found: dict[str, dict[str, None]] = {}
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
            found.setdefault(key, {}).update({str(value): None} if value else {})
    return {key: " / ".join(values) for key, values in found.items() if values}


def _files(**files: Sequence[Path]) -> list[dict[str, str]]:
    """Of the files of each kind where they come from."""
    rows = []
    for kind, paths in files.items():
        for path in paths:
            meta = read_metadata(path, kind)
            name = str(path) if not path.is_absolute() else f"{path.parent.name}/{path.name}"
            told = {"created": "created", "commit": "commit", "config": "config_digest"}
            rows.append({"name": name} | {key: str(meta.get(value) or "–") for key, value in told.items()})
    return rows


# --- the first sentences ------------------------------------------------------------------------------------------


_SAYS = {SHOWN: "faster", REFUTED: "slower", NOT_SHOWN: "not told apart"}


def findings(primary: pd.DataFrame, claims: pd.DataFrame, study: Study) -> list[str]:
    """The primary endpoint; which way of spending as many kernels finds the fastest; what turns are worth against first
    answers. Fewer where the study holds less, none of a miniature or of few tasks."""
    ours = primary[primary["source"] == OURS]
    played = ours[ours["kernels"].notna()]
    if study.report.miniature or played.empty or played["num_tasks"].max() < MIN_TASKS:
        return []
    claim = next((row for row in records(claims) if row["kind"] == PRIMARY), None)
    first = [] if claim is None else [_endpoint(claim, records(played[played["endpoint"] == OF_TABLE]), study)]
    return [*first, *_fastest(ours, played, study), *_turns_or_first_answers(played)]


def _endpoint(claim: dict[str, Any], rows: list[dict[str, Any]], study: Study) -> str:
    config = study.report.primary
    named = "declared before any kernel was judged" if config.declared else "named after such kernels had been seen"
    head = f"Primary endpoint ({named})"
    if claim["verdict"] == NOT_MEASURED or not rows:
        return f"{head}: not measured, for {claim['why']}."
    against = SINGLE if config.against is None else policy_label(config.against, study)
    kernels, found = rows[0]["kernels"], in_line(interval("ours", times)(claim))
    least = claim["detectable"]
    return (
        f"{head}: with {kernels:.0f} kernels a task, {rows[0]['label']} as {_split(rows[0])} reaches {found} of what "
        f"{against} reaches as first answers (geometric mean speedup with eager as the floor, "
        f"{claim['num_tasks']:.0f} tasks): {_SAYS[claim['verdict']]}"
        f"{'' if is_missing(least) else f'; {times(least)} could have been shown'}."
    )


def _fastest(ours: pd.DataFrame, played: pd.DataFrame, study: Study) -> list[str]:
    config = study.report.primary
    kernels = min(config.trajectories * config.turns, played.groupby("policy")["kernels"].max().min())
    rows = records(played[played["kernels"] == kernels])
    if not rows:
        return []
    ranked = sorted(rows, key=lambda row: row["geomean"])
    high, low = (
        f"{row['label']} as {_split(row)}, {in_line(interval('geomean', times)(row))}"
        for row in (ranked[-1], ranked[0])
    )
    others = {row["policy"]: row for row in records(ours)}
    known = [f"; {name}: {times(others[name]['geomean'])}" for name in (COMPILED, ROOM) if name in others]
    return [
        f"Of all ways to spend {kernels:.0f} kernels a task, the highest geometric mean speedup over eager is that of "
        f"{high}, the lowest that of {low}{''.join(known)}."
    ]


def _turns_or_first_answers(played: pd.DataFrame) -> list[str]:
    """At the most kernels that all policies have spent both ways, the split with the most turns."""
    compared = played[played["over_first"].notna()]
    if compared.empty:
        return []
    kernels = compared.groupby("policy")["kernels"].max().min()
    longest = {row["policy"]: row for row in records(compared[compared["kernels"] == kernels].sort_values("turns"))}
    said = [f"{row['label']} {in_line(interval('over_first', times)(row))}" for row in longest.values()]
    split = _split(next(iter(longest.values())))
    return [
        f"With {kernels:.0f} kernels a task, turns ({split}) find of what as many first answers of the same policy "
        f"find: {', '.join(said)}."
    ]


def _split(row: dict[str, Any]) -> str:
    return f"{row['trajectories']:.0f} × {row['turns']:.0f}"
