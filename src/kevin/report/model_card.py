"""README.md of what a study publishes: a model card of Hugging Face's, with the primary table, origin and licence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from kevin.core.config import Study
from kevin.report.notes import MINIATURE
from kevin.report.scores import policy_label
from kevin.report.training import trained_policies

ADAPTER = "adapter_config.json"
"""What a folder with an adapter alone has in place of a model's config.json."""
_OWN = "apache-2.0"
_LICENCES = {"Apache License": "apache-2.0", "MIT License": "mit"}
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_SNAPSHOT = re.compile(r"models--([\w.-]+?)--([\w.-]+)/snapshots/")
_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---", re.DOTALL)


def model_card(
    study: Study, kernels: pd.DataFrame, judged: dict[str, Any], models: Sequence[Path], primary: str | None
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
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False)}---",
        f"# {', '.join(policy_label(name, study) for name in study.evaluate)}: answers and kernels",
        f"**A rehearsal.** {MINIATURE}" if study.report.miniature else "",
        _contents(study, kernels, judged),
        "\n".join(_use(folder, base) for folder in models),
        primary or "",
        _AGAIN,
        _origin(study, base),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


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
    for file in (file for folder in models for file in sorted(folder.glob("LICENSE*"))):
        head = file.read_text("utf-8", errors="replace")[:400]
        if known := next((name for text, name in _LICENCES.items() if text in head), None):
            return {"license": known}
    link = f"https://huggingface.co/{base}" if base else "LICENSE"
    return {"license": "other", "license_name": "of-the-base-model", "license_link": link}


def _card_of(model: str) -> dict[str, Any]:
    """The front matter of a model's card; nothing where none is on this machine."""
    file = Path(model, "README.md")
    if not file.is_file() and _HUB_NAME.fullmatch(model):
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(model, "README.md")
        file = Path(cached) if isinstance(cached, str) else file
    try:
        found = _FRONT_MATTER.match(file.read_text("utf-8"))
        card = yaml.safe_load(found[1]) if found else None
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return card if isinstance(card, dict) else {}


def _asks_kernelbench(study: Study) -> bool:
    """Of a folder by its name alone: a user's own tasks are laid out as KernelBench's are."""
    folder = study.tasks.kernelbench.path
    return study.tasks.source != "catalog" and (folder is None or Path(folder).name == "KernelBench")


def _contents(study: Study, kernels: pd.DataFrame, judged: dict[str, Any]) -> str:
    return (
        f"{len(kernels):,} distinct kernels, judged for {kernels['task_id'].nunique()} held-out tasks, {study.scale} "
        f"scale, commit {judged.get('commit') or 'not known'}. What each file holds: `docs/schemas.md`."
    )


def _use(folder: Path, base: str | None) -> str:
    """How a model that stands beside is asked for a kernel."""
    name = folder.name
    if (folder / ADAPTER).exists():
        how = f"`PeftModel.from_pretrained(model, {name!r})` lays it over {base or 'its base model'}"
        return f"- `{name}/`: an adapter. {how}."
    return f"- `{name}/`: a model. `kevin write MODULE.py --policy ./{name} -c config.yaml` asks it for a kernel."


_AGAIN = """\
Made again from this folder alone, without a GPU and without judging:

    kevin tables --published THIS_FOLDER --out-dir tables

Judged again, a sample or all:

    kevin judge --published THIS_FOLDER --sample 100
"""


def _origin(study: Study, base: str | None) -> str:
    source = study.tasks.kernelbench
    of_tasks = "this project's own, Apache-2.0."
    if study.tasks.source != "catalog":
        of_tasks = f"KernelBench's ({source.repository}, commit {source.commit}), MIT, and {of_tasks}"
    policies = ", ".join(f"`{name}` ({study.policies[name].model})" for name in study.evaluate)
    of_models = f"The models are under the terms of {base}. " if base else ""
    return (
        f"**Origin and licence.** {of_models}Kernels were written by the policies {policies}, and by this project's "
        f"kernel writer; what this project's own models wrote is under Apache-2.0, what others wrote under the terms "
        f"of their models. Tasks: {of_tasks} Kernels are untrusted code: run them in a sandbox, as `kevin judge` does."
    )
