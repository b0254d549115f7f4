"""Low-rank adapters: two small matrices beside each linear layer are trained, in float32, and its own weights stay.

What a layer computes with an adapter is W x + s B A x. Merged it has the weights W + s B A, worked out in float32 and
rounded once, wherever they are needed: by the engine that generates in training, and in the folder of a policy. The
weights in training are never touched, so that no rounding piles up in them.

Shape suffixes: O outputs, I inputs of a layer, R rank of the adapter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from kevin.core.config.train import LoraConfig
from kevin.core.errors import DataError, UsageError, first_line
from kevin.core.texts import strict_json
from kevin.core.types import digest

if TYPE_CHECKING:
    from peft import PeftModel

WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
"""Files of an adapter, as peft names them."""
_PREFIX = "base_model.model."
_FINGERPRINT = "base_fingerprint"
"""Key of an adapter's own weights file: which base it was trained on."""
_FINGERPRINT_NUMBERS = 1024
"""Of each tensor's first row, at most."""
_WEIGHT_FILES = "*.safetensors"


def with_adapter(model: PreTrainedModel, lora: LoraConfig, seed: int) -> PeftModel:
    """``model`` with an adapter on every linear layer but the last one, drawn by ``seed``; its own weights frozen."""
    import peft

    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):  # not in every GPU's memory
        torch.manual_seed(seed)
        adapted = peft.get_peft_model(model, config)
    for module in adapted.modules():
        if isinstance(module, peft.tuners.lora.LoraLayer):
            module.cast_input_dtype_enabled = False  # autocast does it, without a copy in float32
    return adapted


def inner_model(model: torch.nn.Module) -> torch.nn.Module:
    """The model below its adapter, whose layers hold it; others as they are."""
    return model.get_base_model() if _has_adapter(model) else model  # type: ignore[operator]


def _has_adapter(model: torch.nn.Module) -> bool:
    return hasattr(model, "peft_config") and hasattr(model, "get_base_model")


@torch.no_grad()
def merged_parameters(model: PeftModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and value of every parameter that the model has when its adapter is merged into it, one at a time."""
    import peft

    base = model.get_base_model()
    of_layers = {}
    for name, layer in base.named_modules():
        if isinstance(layer, peft.tuners.lora.LoraLayer):
            of_layers[f"{name}.base_layer.weight"] = layer
    for name, value in base.named_parameters():
        if ".lora_" in name:
            continue
        layer = of_layers.get(name)
        plain = name.replace(".base_layer.", ".")
        if layer is None:
            yield plain, value.data
            continue
        (adapter,) = layer.active_adapters
        a_RI, b_OR = (half[adapter].get_parameter("weight") for half in (layer.lora_A, layer.lora_B))
        yield plain, _merged(value.data, a_RI, b_OR, layer.scaling[adapter])


def _merged(weight_OI: torch.Tensor, a_RI: torch.Tensor, b_OR: torch.Tensor, scaling: float) -> torch.Tensor:
    added_OI = (b_OR.float() @ a_RI.float()) * scaling
    return (weight_OI.float() + added_OI).to(weight_OI.dtype)


def export_adapter(checkpoint: Path, base: Path, out: Path, model: str, revision: str | None) -> None:
    """Write a checkpoint's adapter in bfloat16 to a new folder, as peft loads it, with the base that it belongs to.

    Args:
        base: folder of the model that it was trained on.
        model: what a person calls that; of a hub's model its id, with its ``revision``.
    """
    out.mkdir()
    settings = json.loads((checkpoint / SETTINGS).read_text("utf-8"))
    settings |= {"base_model_name_or_path": model, "revision": revision}
    narrow = {name: value.bfloat16() for name, value in load_file(checkpoint / WEIGHTS).items()}
    save_file(narrow, out / WEIGHTS, metadata={"format": "pt", _FINGERPRINT: fingerprint(base)})
    (out / SETTINGS).write_text(strict_json(dict(sorted(settings.items())), indent=1) + "\n", "utf-8")


def write_merged_weights(base: Path, adapter: Path, out: Path) -> None:
    """Write the weights of ``base`` with ``adapter`` merged into them to the folder ``out``, file by file.

    Raises:
        UsageError: the adapter belongs to another base.
        DataError: no adapter, or no safetensors, where they should be.
    """
    settings, added = _read_adapter(adapter)
    shards = sorted(base.glob(_WEIGHT_FILES))
    if not shards:
        raise DataError(f"{base}: no model in it (no {_WEIGHT_FILES}); give the folder of the adapter's base")
    _check_base(base, adapter, settings, added)
    scaling = settings["lora_alpha"] / settings["r"]
    for shard in shards:
        tensors = load_file(shard)
        for name in tensors.keys() & added.keys():
            tensors[name] = _merged(tensors[name], *added[name], scaling)
        save_file(tensors, out / shard.name, metadata={"format": "pt"})


def _read_adapter(folder: Path) -> tuple[dict[str, Any], dict[str, tuple[torch.Tensor, torch.Tensor]]]:
    """Settings, and by the name of a weight the two matrices that are added to it. Raises DataError."""
    try:
        settings = json.loads((folder / SETTINGS).read_text("utf-8"))
        halves = load_file(folder / WEIGHTS)
        if settings["peft_type"] != "LORA":
            raise ValueError(f"a {settings['peft_type']} adapter is no low-rank one")
        added = {
            name.removeprefix(_PREFIX).replace(".lora_A.", "."): (value, halves[name.replace(".lora_A.", ".lora_B.")])
            for name, value in halves.items()
            if ".lora_A." in name
        }
    except (OSError, ValueError, KeyError, SafetensorError) as e:
        raise DataError(f"{folder}: no adapter that can be read ({first_line(e)}); give a folder of peft's") from e
    return settings, added


def _check_base(base: Path, adapter: Path, settings: dict[str, Any], added: dict[str, Any]) -> None:
    with safe_open(adapter / WEIGHTS, "pt") as file:
        wanted = (file.metadata() or {}).get(_FINGERPRINT)
    shapes = {name: shape for path in sorted(base.glob(_WEIGHT_FILES)) for name, shape in _shapes(path)}
    fits = all(shapes.get(name) == [b.shape[0], a.shape[1]] for name, (a, b) in added.items())
    if not fits or wanted not in (None, fingerprint(base)):
        raise UsageError(
            f"{adapter} is an adapter of another model than {base}: it was trained on "
            f"{settings.get('base_model_name_or_path') or 'an unknown one'}; give that one"
        )


def _shapes(path: Path) -> Iterator[tuple[str, list[int]]]:
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118
            yield name, file.get_slice(name).get_shape()


def fingerprint(folder: Path) -> str:
    """Of a model's weights: names, shapes and the first numbers of each. Whole files would take a minute to read."""
    parts = []
    for path in sorted(folder.glob(_WEIGHT_FILES)):
        with safe_open(path, "pt") as file:
            for name in sorted(file.keys()):
                part = file.get_slice(name)
                first = part[:1].flatten()[:_FINGERPRINT_NUMBERS].float().tolist()
                parts += [name, str(part.get_shape()), str(first)]
    return digest("weights", *parts)
