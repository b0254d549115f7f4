"""A run's checkpoints: the trainer's folders, each good only once it is marked as complete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kevin.core.config import PolicyConfig
from kevin.core.errors import DataError
from kevin.core.files import whole_folder, write_text, writing
from kevin.core.identity import read_identity
from kevin.core.texts import strict_json
from kevin.policy.load import MARK as MARK_OF_REHEARSALS
from kevin.policy.load import RECORDING

if TYPE_CHECKING:
    from transformers import PretrainedConfig

NUM_CHECKPOINTS = 2
"""That are kept of a run."""
MARK = "complete.json"
ADAPTER, ADAPTER_SETTINGS = "adapter", "adapter_config.json"
"""Folder of an adapter in that of a policy, and a file of it."""
_DESCRIPTIONS = ("*.safetensors.index.json", "config.json", "generation_config.json", "LICENSE*")
_MODEL_FILES = ("*.safetensors", *_DESCRIPTIONS)
_TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.jinja")


class CheckpointKeeper:
    def __init__(self, folder: Path) -> None:
        """``folder`` holds ``checkpoint-<gradient steps>/``; the `NUM_CHECKPOINTS` newest are kept."""
        self.folder = folder

    def finish(self, num_updates: int, step: int) -> None:
        """Mark the checkpoint that was just written, and delete older ones."""
        write_text(self.folder / f"checkpoint-{num_updates}" / MARK, strict_json({"step": step}) + "\n")
        for path in self.complete()[:-NUM_CHECKPOINTS]:
            (path / MARK).unlink()
            shutil.rmtree(path)

    def complete(self) -> list[Path]:
        """Usable checkpoints, oldest first."""
        return sorted((p.parent for p in self.folder.glob(f"checkpoint-*/{MARK}")), key=_number)

    def latest(self) -> tuple[Path, int] | None:
        """The newest usable checkpoint and its step. Others, which a kill left unfinished, are deleted."""
        usable = self.complete()
        for path in self.folder.glob("checkpoint-*"):
            if path not in usable:
                shutil.rmtree(path, ignore_errors=True)  # another process may be at it
        if not usable:
            return None
        mark = usable[-1] / MARK
        try:
            return usable[-1], int(json.loads(mark.read_text("utf-8"))["step"])
        except (ValueError, KeyError, TypeError) as e:
            raise DataError(f"{mark}: damaged ({e}); delete {usable[-1]} to go on from the one before") from None


@contextmanager
def checkpoint_written(path: Path) -> Iterator[None]:
    """Around what writes a checkpoint's folder, which is removed again when that fails.

    Raises:
        OSError: the device is full, as `kevin.core.files.writing` tells it.
    """
    with ExitStack() as failed:
        failed.callback(shutil.rmtree, path, ignore_errors=True)
        with writing(path):
            yield
        failed.pop_all()


@contextmanager
def keeping_cache_setting(config: PretrainedConfig, use_cache: bool | None) -> Iterator[None]:
    """What is saved meanwhile says ``use_cache``, as the model did before a trainer turned it off for itself."""
    in_training, config.use_cache = config.use_cache, use_cache
    try:
        yield
    finally:
        config.use_cache = in_training


def _number(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def export_policy(run_folder: Path, out: Path) -> None:
    """Write model and tokenizer of a run's last checkpoint to ``out``: an ordinary Hugging Face folder. Of a run that
    trained an adapter it has that merged into its weights, and the adapter by itself in the folder ``adapter``.

    Raises:
        DataError: the run has no usable checkpoint, or its initial model is not what it was trained from.
    """
    found = CheckpointKeeper(run_folder / "checkpoints").latest()
    if found is None:
        raise DataError(f"{run_folder}: no complete checkpoint; train first: kevin train --out {run_folder} ...")
    checkpoint, _ = found
    with whole_folder(out) as partial:
        if not (checkpoint / ADAPTER_SETTINGS).exists():
            _copy(checkpoint, (*_MODEL_FILES, *_TOKENIZER_FILES), partial)
            return
        from kevin.train.lora import export_adapter

        base, config = _initial_model(run_folder)
        export_adapter(checkpoint, base, partial / ADAPTER, config.model, config.revision)
        _write_merged(base, partial / ADAPTER, partial)


def merge_adapter(base: Path, adapter: Path, out: Path) -> None:
    """Write an ordinary Hugging Face folder: the model of the folder ``base`` with an adapter merged into its weights.

    Raises:
        KevinError: as `kevin.train.lora.write_merged_weights`.
    """
    with whole_folder(out) as partial:
        _write_merged(base, adapter, partial)


def _write_merged(base: Path, adapter: Path, out: Path) -> None:
    from kevin.train.lora import write_merged_weights

    write_merged_weights(base, adapter, out)
    _copy(base, (*_DESCRIPTIONS, *_TOKENIZER_FILES, MARK_OF_REHEARSALS, RECORDING), out)


def _copy(folder: Path, patterns: tuple[str, ...], out: Path) -> None:
    for pattern in patterns:
        for path in folder.glob(pattern):
            shutil.copy2(path, out / path.name)


def _initial_model(run_folder: Path) -> tuple[Path, PolicyConfig]:
    """The folder of what a run was trained from, still as it was then."""
    from kevin.policy.load import policy_identity
    from kevin.policy.weights import model_folder

    ((name, recorded),) = read_identity(run_folder / "run.json")["policies"].items()
    files = recorded.pop("files")
    config = PolicyConfig.model_validate(recorded)
    folder = model_folder(name, config.model, config.revision)
    if policy_identity(config)["files"] != files:
        raise DataError(
            f"{run_folder} trained an adapter of {config.model} as it was then, and that is another model now; bring "
            f"the old one back"
        )
    return folder, config
