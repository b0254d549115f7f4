"""What a study publishes: one folder of which every table is made again, and every kernel judged again.

``answers.csv``, ``answers.json``: what was answered and what the judge found (`kevin.report.scores`), by the first
digits of a kernel's digest. ``kernels.parquet``: every distinct kernel that was judged for a held-out task, once, with
its source, outcome and times. ``tasks.parquet``: these tasks. ``baselines.csv``, ``search_seconds.csv``,
``trainings/``: what else the tables are made of, and the kernels that each training judged. ``config.yaml``: the
resolved configuration. ``tables/``, and a folder for each trained model, where they are given. ``README.md``: a card.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from kevin.core.config import Study
from kevin.core.errors import DataError
from kevin.core.files import (
    link_or_copy,
    read_metadata,
    read_parquet,
    read_train_turns,
    read_turns,
    whole_folder,
    write_csv,
    write_parquet,
    write_text,
)
from kevin.core.progress import Progress
from kevin.core.types import Kernel, Outcome, Turn
from kevin.report.captions import MINIATURE, read_summaries
from kevin.report.catalogue import OF_SCORES, SPLITS, Given, write_table_of
from kevin.report.forms import records
from kevin.report.html import templates
from kevin.report.recipes import CEILING, policy_label
from kevin.report.scores import (
    KERNEL_DIGITS,
    KIND,
    answers_frame,
    machines,
    read_scores,
    read_verdict,
    write_answers,
)
from kevin.report.search import SECONDS, read_search, write_seconds
from kevin.report.training import trained_policies

log = logging.getLogger(__name__)

KERNELS = "kernels"
"""Kind of the file of kernels."""
COLUMNS = [
    *("task_id", "kernel_digest", "dialect", "language", "outcome", "reason", "speedup", "median_us", "eager_us"),
    *("device_name", "protocol_digest", "source"),
]
_BASE_MODEL = "base_model"


class Published:
    """Files of such a folder."""

    def __init__(self, folder: Path) -> None:
        self.answers = folder / "answers.csv"
        self.kernels = folder / "kernels.parquet"
        self.tasks = folder / "tasks.parquet"
        self.baselines = folder / "baselines.csv"
        self.config = folder / "config.yaml"
        self.card = folder / "README.md"
        self.summaries = sorted(folder.glob("trainings/*/summary.json"))
        self.runs = [path.parent for path in sorted(folder.glob("trainings/*/metrics.jsonl"))]


def publish(
    out: Path,
    *,
    study: Study,
    scores: Sequence[Path],
    turns: Sequence[Path],
    tasks: Path,
    store: Path,
    search: Sequence[Path] = (),
    baselines: Path | None = None,
    summaries: Sequence[Path] = (),
    tables: Sequence[Path] = (),
    models: Sequence[Path] = (),
) -> Path:
    """Write the folder, in one piece. Returns ``out``.

    Args:
        scores, turns: of all policies and held-out splits, the ceiling among them.
        search: rollouts of strategies, where there are any.
        store: the verdicts, which have the times.
        baselines: of what tables compare with PyTorch's compiler.
        summaries: of the trainings behind these; ``metrics.jsonl`` is taken from beside each.
        tables: CSV files; Markdown and LaTeX are taken from beside each. The card shows ``primary``.
        models: folders, of which the adapter is taken where they have one. Files are linked where the system can.

    Raises:
        DataError: one of ``models`` is no model's folder.
    """
    with whole_folder(out) as folder:
        files = Published(folder)
        played = read_search(search, tasks, study)
        frames = [read_scores(scores, study), *(r.scores.assign(strategy=r.strategy) for r in played)]
        write_answers(pd.concat(frames, ignore_index=True), files.answers, machines(scores, study), study)
        write_seconds(played, folder / SECONDS)
        if baselines is not None:
            write_csv(files.baselines, read_parquet(baselines, "baselines")[0])
        judged = read_metadata(scores[0], KIND).get("rollouts", {})
        kernels = kernels_frame((turn for path in (*turns, *search) for turn in read_turns(path)[0]), store)
        write_parquet(files.kernels, kernels, KERNELS, _origin(judged), compression="zstd")
        every, meta = read_parquet(tasks, "tasks")
        write_parquet(files.tasks, every[every["split"] != "train"], "tasks", _origin(meta), compression="zstd")
        write_text(files.config, yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False))
        for path in summaries:
            _copy_training(path, folder / "trainings", store)
        for table in tables:
            _copy_table(table, folder / "tables")
        own = [_copy_model(model, folder) for model in models]
        shown = folder / "tables/primary.md"
        primary = shown.read_text("utf-8") if shown.exists() else None
        write_text(files.card, model_card(study, kernels, judged, own, primary))
    log.info("%s: nothing is uploaded; to publish it: hf upload YOUR_NAME/A_NAME %s", out, out)
    return out


def _copy_table(table: Path, into: Path) -> None:
    into.mkdir(exist_ok=True)
    for suffix in (".csv", ".md", ".tex"):
        if (file := table.with_suffix(suffix)).exists():
            shutil.copy(file, into / file.name)


def _copy_model(model: Path, into: Path) -> Path:
    """Its folder below ``into``, of its name, with the licence that an adapter has from its base."""
    source = model / "adapter" if (model / "adapter" / ADAPTER).exists() else model
    if not any((source / name).exists() for name in (ADAPTER, "config.json")):
        raise DataError(f"{model}: neither a model nor an adapter (no config.json, no {ADAPTER} in it)")
    own = into / model.name
    shutil.copytree(source, own, copy_function=link_or_copy)
    for licence in model.glob("LICENSE*"):
        if not (own / licence.name).exists():
            link_or_copy(licence, own / licence.name)
    return own


def _copy_training(path: Path, into: Path, store: Path) -> None:
    """What a training says of its end and of its steps, and its kernels; nothing where an older one says nothing."""
    for summary in read_summaries([path]):
        own = into / (summary.run or _BASE_MODEL)
        own.mkdir(parents=True)
        for name in ("summary.json", "metrics.jsonl"):
            if (file := path.with_name(name)).exists():
                shutil.copy(file, own / name)
        if turns := read_train_turns(path.parent):
            kernels = kernels_frame((turn for _, turn, _ in turns), store)
            write_parquet(own / "kernels.parquet", kernels, KERNELS, {"run": summary.run}, compression="zstd")


def _origin(meta: dict[str, Any]) -> dict[str, Any]:
    """Provenance of a file without what is said of the file itself."""
    return {key: value for key, value in meta.items() if key not in ("kind", "schema_version", "policy", "split")}


def kernels_frame(turns: Iterator[Turn], store: Path) -> pd.DataFrame:
    """Every distinct kernel of these turns for each task once, sorted; times of those whose verdict is in the store.

    A kernel that a harness failure left without a verdict is left out.
    """
    found: dict[tuple[str, str], list[Any]] = {}
    for turn in turns:
        kernel = turn.kernel
        if kernel is None or turn.outcome is None or (turn.task_id, kernel.digest) in found:
            continue
        verdict = read_verdict(store, turn.verdict_key) if turn.verdict_key else None
        told: list[Any] = [None] * 4
        if verdict is not None:
            times = [timing and timing.median_us for timing in (verdict.timing, verdict.reference_timing)]
            told = [*times, verdict.device_name, verdict.protocol_digest]
        head = [turn.task_id, kernel.digest, kernel.dialect, kernel.language]
        found[turn.task_id, kernel.digest] = [
            *(*head, turn.outcome.value, turn.reason, turn.speedup),
            *(*told, kernel.source),
        ]
    frame = pd.DataFrame([found[key] for key in sorted(found)], columns=COLUMNS)
    return frame.astype(dict.fromkeys(["speedup", "median_us", "eager_us"], "float64"))


def read_kernels(files: Published) -> list[tuple[dict[str, Any], Kernel]]:
    """Each row with its kernel.

    Raises DataError where a row is none, or not the kernel that its digest names, and where one of an answer is gone.
    """
    frame, _ = read_parquet(files.kernels, KERNELS)
    if lacking := {"task_id", "kernel_digest", "dialect", "language", "outcome", "source"} - {*frame.columns}:
        raise DataError(f"{files.kernels}: no column {min(lacking)}")
    pairs = []
    for row in records(frame.astype(object).where(frame.notna(), None)):
        try:
            kernel = Kernel(dialect=row["dialect"], language=row["language"], source=row["source"])
            Outcome(row["outcome"])
        except ValueError as e:
            raise DataError(f"{files.kernels}: {row['task_id']}: no judged kernel: {e}") from None
        if kernel.digest != row["kernel_digest"]:
            raise DataError(f"{files.kernels}: {row['task_id']}: a kernel is not what its digest says")
        pairs.append((row, kernel))
    if files.answers.exists():
        judged = answers_frame(files.answers, "kernel_digest").dropna(subset=["kernel_digest", "outcome"])
        have = {(row["task_id"], row["kernel_digest"][:KERNEL_DIGITS]) for row, _ in pairs}
        if gone := {*zip(judged["task_id"], judged["kernel_digest"], strict=True)} - have:
            task, digest = min(gone)
            raise DataError(f"{files.kernels}: no kernel {digest} of {task}, which stands in {files.answers.name}")
    return pairs


def make_published_tables(folder: Path, out: Path, study: Study) -> list[Path]:
    """Every table that such a folder holds, in ``out`` as CSV, Markdown and LaTeX. Raises DataError where it cannot."""
    own = Published(folder)
    splits = _splits(own, study)
    files: dict[str, Any] = {"scores": [own.answers], "search": [own.answers]}
    files |= {"baselines": own.baselines} if own.baselines.exists() else {}
    files |= {"tasks": own.tasks, "runs": own.runs, "summaries": own.summaries}
    given = Given(files, study)
    _tell_lacking_trainings(own, study)
    names = [name for name in OF_SCORES if name in splits or name not in SPLITS]
    known = {*given.scores["policy"]}
    names += ["rl_gain"] if any({*pair} <= known for pair in trained_policies(study).items()) else []
    names += ["step_time"] if own.runs else []
    names += ["search"] if given.rollouts else []
    names += ["search_turns"] if any(len(played.turn_seconds) > 1 for played in given.rollouts) else []
    made = []
    with Progress(len(names), "tables", "tables") as progress:
        for name in names:
            made.append(write_table_of(name, out / f"{name}.csv", given))
            progress.update()
    return made


def _tell_lacking_trainings(files: Published, study: Study) -> None:
    """A folder of several studies has none of them."""
    runs = {study.made_by(policy) for policy in trained_policies(study)}
    if lacking := sorted(map(str, runs - {run.name for run in files.runs})):
        trainings = files.answers.parent / "trainings"
        log.warning("%s: no metrics of %s; tables tell nothing of these trainings", trainings, ", ".join(lacking))


def _splits(files: Published, study: Study) -> set[str]:
    """Of the answers, whose policies and tasks have to be those of the folder's other files, where it has these."""
    if not (beside := files.answers.with_suffix(".json")).exists():
        raise DataError(f"{beside}: no such file; it says how many answers there are, and what they were judged on")
    answers = answers_frame(files.answers)
    known = {("policy", files.config): {*study.policies, CEILING}}
    if files.tasks.exists():
        known["task_id", files.tasks] = {*read_parquet(files.tasks, "tasks")[0]["task_id"]}
    for (column, place), names in known.items():
        if unknown := sorted({*answers[column].dropna()} - names):
            raise DataError(f"{files.answers}: {column} {unknown[0]} is not in {place}")
    return {*answers["split"]}


# --- README.md ----------------------------------------------------------------------------------------------------


ADAPTER = "adapter_config.json"
"""What a folder with an adapter alone has in place of a model's config.json."""
_OWN = "apache-2.0"
_LICENCES = {"Apache License": "apache-2.0", "MIT License": "mit"}
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_SNAPSHOT = re.compile(r"models--([\w.-]+?)--([\w.-]+)/snapshots/")


def model_card(
    study: Study,
    kernels: pd.DataFrame,
    judged: dict[str, Any],
    models: Sequence[Path] = (),
    primary: str | None = None,
) -> str:
    """The whole text.

    Args:
        kernels: `kevin.report.published.COLUMNS`.
        judged: provenance of the rollouts.
        models: folders that stand beside it, by their names.
        primary: the study's primary table in Markdown.
    """
    base = _base(study)
    front = {
        **({"base_model": base} if base else {}),
        **_licence(study, base, models),
        "library_name": "peft" if any((folder / ADAPTER).exists() for folder in models) else "transformers",
        **({"pipeline_tag": "text-generation"} if models else {}),
        "tags": [
            *("kevin-study", "kernel-generation", "cuda" if study.language == "cuda" else "c++"),
            *(["grpo", "reinforcement-learning"] if trained_policies(study) else []),
            *(["rehearsal"] if study.report.miniature else []),
        ],
        **({"datasets": ["ScalingIntelligence/KernelBench"]} if _asks_kernelbench(study) else {}),
    }
    text = (
        templates()
        .get_template("model_card.md.j2")
        .render(
            front=yaml.safe_dump(front, sort_keys=False),
            study=study,
            labels=list(dict.fromkeys(policy_label(name, study) for name in study.evaluate)),  # seeds share one
            miniature=MINIATURE,
            kernels=kernels,
            commit=judged.get("commit") or "not known",
            models={folder.name: (folder / ADAPTER).exists() for folder in models},
            base=base,
            primary=primary,
        )
    )
    return text.rstrip("\n") + "\n"


def _start(study: Study) -> str:
    """Key of the policy that all training began with; the first one where nothing was trained."""
    trained = list(trained_policies(study))
    return study.origins((trained or list(study.evaluate))[0])[-1]


def _base(study: Study) -> str | None:
    """The hub's name of the model that all began with, also where a snapshot of it is given as a folder."""
    start = _start(study)
    model = study.policies[start].model
    if study.is_base_model(start):
        model = study.base_model.init or ""
    if found := _SNAPSHOT.search(model):
        return f"{found[1]}/{found[2]}"
    return model if _HUB_NAME.fullmatch(model) and not Path(model).exists() else None


def _licence(study: Study, base: str | None, models: Sequence[Path]) -> dict[str, str]:
    """Of a model made from scratch the project's; else what the base model's card or licence says on this machine."""
    start = _start(study)
    if study.is_base_model(start) and study.base_model.init is None:
        return {"license": _OWN}
    card = _card_of(study.policies[start].model)
    if "license" in card:
        return {key: str(card[key]) for key in ("license", "license_name", "license_link") if key in card}
    found = [file for folder in models for file in sorted(folder.glob("LICENSE*"))]
    for file in found:
        head = file.read_text("utf-8", errors="replace")[:400]
        if known := next((name for text, name in _LICENCES.items() if text in head), None):
            return {"license": known}
    own = f"{found[0].parent.name}/{found[0].name}" if found else None
    link = f"https://huggingface.co/{base}" if base else own
    return {"license": "other", "license_name": "of-the-base-model", **({"license_link": link} if link else {})}


def _card_of(model: str) -> dict[str, Any]:
    """The front matter of a model's card; nothing where none is on this machine, or it has none that can be read."""
    from huggingface_hub import ModelCard, try_to_load_from_cache

    file = Path(model, "README.md")
    if not file.is_file() and _HUB_NAME.fullmatch(model):
        cached = try_to_load_from_cache(model, "README.md")
        file = Path(cached) if isinstance(cached, str) else file
    try:
        return dict(ModelCard.load(file).data.to_dict()) if file.is_file() else {}
    except (OSError, ValueError, yaml.YAMLError):
        return {}


def _asks_kernelbench(study: Study) -> bool:
    """Of a folder by its name alone: a user's own tasks are laid out as KernelBench's are."""
    folder = study.tasks.kernelbench.path
    return study.tasks.source != "catalog" and (folder is None or Path(folder).name == "KernelBench")
