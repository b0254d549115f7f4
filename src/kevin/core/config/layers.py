"""Trees of keys, as files hold them: read, laid over each other, and rid of keys that there are no more."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kevin.core.config.tasks import KernelBenchSource
from kevin.core.errors import ConfigError, UsageError
from kevin.core.protocol import ONLY_FLOAT32
from kevin.core.texts import once, parse_json, read_text


class _Loader(yaml.SafeLoader):
    """PyYAML's, which takes the last of two equal keys without a word."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        once(((key.tag, key.value), f"line {key.start_mark.line + 1}: {key.value}") for key in keys)
        return node


def read_layer(path: Path) -> dict[str, Any]:
    """The keys of a YAML or JSON file. Raises ConfigError naming a file that is not there or holds none."""
    try:
        text = read_text(path, "configuration file")
        is_json = path.suffix == ".json"  # which may have tabs
        layer = parse_json(text) if is_json else yaml.load(text, _Loader)
    except json.JSONDecodeError as e:
        raise ConfigError(f"{path}: not valid JSON: {e}") from None
    except yaml.YAMLError as e:
        raise ConfigError(f"{path}: not valid YAML: {e}") from None
    except RecursionError:
        raise ConfigError(f"{path}: its values stand too deep within each other") from None
    except ValueError as e:  # a number of thousands of digits, a date that there is not
        raise ConfigError(f"{path}: {e}") from None
    except UsageError as e:
        raise ConfigError(str(e)) from None
    if not isinstance(layer, dict):
        raise ConfigError(f"{path}: expected a mapping of keys at the top level")
    return layer


def read_layers(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Of each file. Raises ConfigError, also for one whose ``over`` is none of the files before it."""
    layers = []
    for number, path in enumerate(paths):
        layer = read_layer(path)
        name = Path(str(layer.get("over") or "")).name
        if name and name not in [before.name for before in paths[:number]]:
            first = next((file for file in (path.with_name(name), Path("config", name)) if file.exists()), name)
            raise ConfigError(f"{path} is laid over {name}, and says nothing without it: name {first} before it")
        layers.append(layer)
    return layers


def plain(tree: Any) -> Any:
    """Mappings and sequences of any kind as sorted dictionaries and lists; keys that are no text stay what they are."""
    if isinstance(tree, Mapping):
        return {key: plain(tree[key]) for key in sorted(tree, key=str)}
    return [plain(value) for value in tree] if isinstance(tree, list | tuple) else tree


def merge(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """Overlay wins; dictionaries are merged, lists and values replaced."""
    result = dict(base)
    for key, value in overlay.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key; an empty mapping is one."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        is_branch = isinstance(value, dict) and value
        flat |= leaves(value, f"{prefix}{key}.") if is_branch else {f"{prefix}{key}": value}
    return flat


def origins(paths: Sequence[Path]) -> Callable[[str], str]:
    """Which of these files set a dotted key, or the mapping that it stands in, last; ``default`` where none did."""
    files = {key: str(path) for path in paths for key in leaves(read_layer(path))}

    def origin(key: str) -> str:
        parts = key.split(".")
        names = (".".join(parts[:i]) for i in range(len(parts), 0, -1))
        return next((files[name] for name in names if name in files), "default")

    return origin


class Removed(NamedTuple):
    value: Any
    """What every study has; a function of the whole tree where that depends on other keys."""
    instead: str
    """For whoever wants another value."""


_NEW_CODE = "to have another, change {} in src/kevin/{}"
_PRETRAINING = "the keys of base_model.pretraining are in its place"
_OLD_SCHOOL = {
    **{"num_steps": 400, "batch_tokens": 48000, "micro_batch_tokens": 16000, "learning_rate": 8e-4, "mistakes": 0.0},
    **{"num_composed": 250, "num_general": 500, "num_shapes": 4, "num_held_out": 48, "evaluate_every": 50},
    **{"num_workers": None, "num_gpus": 1, "compile_layers": True, "checkpoint_minutes": 5.0},
}
_OLD_WAYS = {
    **{"mend": 3.0, "change": 3.0, "go_back": 1.0, "follow_profile": 1.0, "start_anew": 1.0, "change_at_random": 1.0},
    "repeat": 1.0,
}


def _constant(value: Any, name: str, module: str) -> Removed:
    return Removed(value, f"it is always {value}; {_NEW_CODE.format(name, module)}")


def _by_device(cuda: str, cpu: str) -> Callable[[Mapping[str, Any]], str]:
    def value(raw: Mapping[str, Any]) -> str:
        judge = raw.get("judge")
        return cuda if isinstance(judge, Mapping) and judge.get("device") == "cuda" else cpu

    return value


REMOVED: dict[str, Removed] = {
    "language": Removed(_by_device("cuda", "cpp"), "it follows from judge.device: cuda on cuda, cpp on cpu"),
    "tasks.num_train_level1": Removed(None, "set tasks.num_train, which is for both levels"),
    "tasks.num_train_level2": Removed(None, "set tasks.num_train, which is for both levels"),
    "tasks.size": Removed(_by_device("gpu", "cpu"), "it follows from judge.device"),
    "policies.*.max_feedback_chars": Removed(None, "set rollout.max_feedback_chars"),
    "base_model.school_training": Removed(_OLD_SCHOOL, _PRETRAINING),
    "base_model.second_school": Removed(None, f"{_PRETRAINING}, with later_share for its later turns"),
    "base_model.school": Removed(None, "the corpus has one part, with the habits of base_model.writer"),
    "base_model.school_share": Removed(0.75, "the corpus has one part, with the habits of base_model.writer"),
    "base_model.writer.careful_mistakes": _constant(0.1, "Habits", "writer/plan.py"),
    "base_model.writer.quick_mistakes": _constant(0.8, "Habits", "writer/plan.py"),
    "base_model.writer.more_mistakes": Removed(0, "a kernel holds one mistake or none"),
    "base_model.writer.says_mistakes": Removed(False, "a chain of thought does not say its mistakes"),
    "base_model.ways": Removed(_OLD_WAYS, f"their shares are fixed; {_NEW_CODE.format('Ways', 'writer/ways.py')}"),
    "base_model.history.num_best": _constant(3, "NUM_BEST", "core/history.py"),
    "base_model.decisions": Removed("changed", "a later turn says the decisions that it makes"),
    "base_model.later_share": _constant(0.5, "LATER_SHARE", "writer/transcripts.py"),
    "base_model.vocab_size": _constant(4096, "VOCABULARY", "train/tokenizer.py"),
    "base_model.max_turns": _constant(4, "MAX_TURNS", "writer/transcripts.py"),
    "base_model.copying_heads": Removed(True, "a model that can hold them begins with copying heads"),
    "base_model.copying_weight": _constant(0.25, "COPYING_WEIGHT", "train/packing.py"),
    "base_model.batch_size": _constant(2, "BATCH_SIZE", "train/base_model.py"),
    "base_model.learning_rate": _constant(3e-3, "LEARNING_RATE", "train/base_model.py"),
    "base_model.matrix_learning_rate": _constant(0.02, "MATRIX_LEARNING_RATE", "train/base_model.py"),
    "base_model.time_budget_s": Removed(None, "lower base_model.num_transcripts or base_model.max_steps"),
    "rollout.history.num_best": _constant(3, "NUM_BEST", "core/history.py"),
    "search.strategies.*.turns_per_round": Removed(None, "a beam selects once, after half of its turns"),
    "search.strategies.*.num_kept": Removed(None, "of a beam a quarter goes on"),
    "search.strategies.*.population": _constant(8, "Evolution", "rollout/search.py"),
    "base_model.pretraining.batch_tokens": _constant(48000, "BATCH_TOKENS", "train/school.py"),
    "base_model.pretraining.compile_layers": Removed(True, "set TORCH_COMPILE_DISABLE=1 in the environment"),
    "tasks.kernelbench.repository": Removed(KernelBenchSource.repository, "name a checkout of yours in path beside it"),
    "tasks.kernelbench.commit": Removed(KernelBenchSource.commit, "name a checkout of yours in path beside it"),
    "base_model.pretraining.num_workers": Removed(None, "give the training fewer cores, by taskset"),
    "search.in_report": Removed(False, "name the strategies that the report compares under search.compared"),
    "judge.precision": Removed("float32", f"only float32 is judged, since {ONLY_FLOAT32}"),
    "judge.call_slowdown": _constant(300.0, "JudgeProtocol.call_slowdown", "core/protocol.py"),
    "judge.inline_build_timeout_s": _constant(180.0, "JudgeProtocol.inline_build_timeout_s", "core/protocol.py"),
    "judge.max_output_kb": _constant(64, "JudgeProtocol.max_output_kb", "core/protocol.py"),
    "pool.waiting_cells": _constant(32, "WAITING_CELLS", "judge/pool/judge_pool.py"),
    "pool.build_workers": Removed(None, "give the judge fewer cores, by taskset"),
    "pool.max_retries": _constant(2, "MAX_RETRIES", "judge/pool/judge_pool.py"),
    "report.thresholds": _constant([0.0, 0.5, 1.0, 1.5, 2.0], "ReportConfig.thresholds", "core/config/rollout.py"),
    "report.viewer_trajectories": _constant(2, "ReportConfig.viewer_trajectories", "core/config/rollout.py"),
    "train.compile_layers": Removed(True, "set TORCH_COMPILE_DISABLE=1 in the environment"),
    "train.max_response_tokens": Removed(None, "set rollout.max_response_tokens"),
    "train.vllm_draft_tokens": Removed(0, "set draft_tokens of the policy that is trained"),
    "train.split": Removed("train", "training is on the tasks of split train"),
    "train.time_budget_s": Removed(None, "lower train.num_steps"),
    "train.temperature": _constant(0.9, "TEMPERATURE", "train/step.py"),
    "train.clip_low": _constant(0.2, "CLIP_LOW", "train/grpo.py"),
    "train.warmup_share": _constant(0.03, "WARMUP_SHARE", "train/grpo.py"),
    "train.weight_decay": Removed(0.0, "AdamW has none"),
    "train.updates_per_step": _constant(2, "TrainConfig.updates_per_step", "core/config/train.py"),
    "train.vllm_server_url": Removed(None, "take generation: vllm_colocate"),
    "train.num_checkpoints": _constant(2, "NUM_CHECKPOINTS", "train/checkpoint.py"),
    "train.stop_patience": _constant(3, "STOP_PATIENCE", "train/records.py"),
    "train.prune_keep": _constant(4, "NUM_KEPT", "train/think_prune.py"),
    "train.prune_epochs": _constant(2, "NUM_EPOCHS", "train/think_prune.py"),
}
"""By dotted key; ``*`` stands for a name of the user's choice."""
_LAID_OVER = {
    **dict.fromkeys(("train", "reward", "judge"), ("runs.*",)),
    "rollout": ("runs.*", "search.strategies.*"),
}
"""Sections whose keys also stand below others."""


def without_removed(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A raw tree without these keys, and a line for each that asks for something that there is no more."""
    tree, problems = dict(raw), []
    for path, wanted, instead in _removed(raw):
        for found, value in list(_found(tree, path)):
            if not _same(value, wanted):
                problems.append(f"{'.'.join(found)}: there is no such key any more; {instead}")
            tree = _dropped(tree, found)
    return tree, problems


def as_now(saved: Mapping[str, Any]) -> dict[str, Any]:
    """A saved tree without those of these keys that say what is always so now."""
    tree = dict(saved)
    for path, wanted, _ in _removed(saved):
        for found, value in list(_found(tree, path)):
            if _same(value, wanted):
                tree = _dropped(tree, found)
    return tree


def _removed(raw: Mapping[str, Any]) -> Iterator[tuple[list[str], Any, str]]:
    """Path, value and sentence of each key, also where it stands below another section."""
    for pattern, (value, instead) in REMOVED.items():
        wanted = value(raw) if callable(value) else value
        for above in ("", *_LAID_OVER.get(pattern.partition(".")[0], ())):
            yield [*filter(None, above.split(".")), *pattern.split(".")], wanted, instead


def _found(tree: Mapping[str, Any], path: Sequence[str]) -> Iterator[tuple[list[str], Any]]:
    """Keys, and what they lead to, of every place in the tree that fits the path."""
    head, *rest = path
    for name, value in tree.items():
        if head not in ("*", name):
            continue
        if not rest:
            yield [name], value
        elif isinstance(value, Mapping):
            yield from (([name, *below], found) for below, found in _found(value, rest))


def _dropped(tree: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    head, *rest = path
    if rest:
        return {**tree, head: _dropped(tree[head], rest)}
    return {name: value for name, value in tree.items() if name != head}


def _same(given: Any, wanted: Any) -> bool:
    """Of mappings the keys that are given."""
    if isinstance(given, Mapping) and isinstance(wanted, Mapping):
        return all(key in wanted and _same(value, wanted[key]) for key, value in given.items())
    return bool(given == wanted)
