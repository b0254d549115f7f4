"""How long prompts, answers and feedback are: as configured, else as it suits the model."""

from __future__ import annotations

import json
from pathlib import Path

from kevin.core.config import PolicyConfig, Study
from kevin.core.errors import ConfigError

KEYS = ("max_prompt_tokens", "max_response_tokens", "max_feedback_chars")
LONGEST = {"max_prompt_tokens": 8192, "max_response_tokens": 16384, "max_feedback_chars": 4000}
"""For endpoints and recordings, and where a model's context is not known: the lengths of arXiv 2507.11948."""
OWN_FEEDBACK_CHARS = 400


def with_lengths(study: Study, policy: str, *, fetch: bool = False) -> Study:
    """The study with every length under ``rollout`` a number, the one for this policy.

    A key of the policy wins over that under ``rollout``. A trained policy has what the one has that it was trained
    from. What is configured nowhere follows from the model: the study's own writes short answers; another model of this
    machine shares its context between prompt and answer.

    Args:
        fetch: whether a hub's model may be asked for its context over the network.
    """
    given = configured_lengths(study, policy)
    if None not in given.values():
        return _filled(study, given)
    origin = study.origins(policy)[-1]
    config = study.policies[origin]
    context = study.base_model.max_tokens
    if study.is_base_model(origin) and study.base_model.init is not None:
        suited = _shared(context, given)
    elif study.is_base_model(origin):
        suited = {
            "max_prompt_tokens": 3 * context // 4,
            "max_response_tokens": context // 8,
            "max_feedback_chars": OWN_FEEDBACK_CHARS,
        }
    elif config.backend in ("transformers", "vllm") and (found := _context_of(config, study, fetch)):
        suited = _shared(found, given)
    else:
        suited = LONGEST
    return _filled(study, {key: suited[key] if given[key] is None else given[key] for key in KEYS})


def check_context(study: Study, policy: str) -> None:
    """Whether the longest prompt and answer of a policy fit the context of the model that it is made of.

    Args:
        study: as `with_lengths` gives it for the policy.

    Raises:
        ConfigError: they do not.
    """
    config = study.policies[study.origins(policy)[-1]]
    if config.backend not in ("transformers", "vllm"):
        return
    context = _context_of(config, study, fetch=True)
    prompt, response = study.rollout.max_prompt_tokens or 0, study.rollout.max_response_tokens or 0
    response = max(response, study.train.raised_response_tokens or 0)
    if context is not None and prompt + response > context:
        raise ConfigError(
            f"policies.{policy}: prompts of {prompt} tokens and answers of {response} do not fit the context of "
            f"{config.model}, {context} tokens: lower rollout.max_prompt_tokens or rollout.max_response_tokens"
        )


def configured_lengths(study: Study, policy: str) -> dict[str, int | None]:
    """Each length as the configuration sets it for a policy; None where it leaves that to the model."""
    sections = [*(study.policies[name] for name in study.origins(policy)), study.rollout]
    values = {key: [getattr(section, key, None) for section in sections] for key in KEYS}
    return {key: next((v for v in found if v is not None), None) for key, found in values.items()}


def response_tokens(study: Study, step: int) -> int:
    """The longest answer that is allowed in a step."""
    train = study.train
    raised_at, raised = train.raise_response_at_step, train.raised_response_tokens
    if raised_at is not None and raised is not None and step >= raised_at:
        return raised
    found = study.rollout.max_response_tokens
    assert found is not None, "every length is a number in what `with_lengths` gives"
    return found


def longest_response(study: Study) -> int:
    """The longest answer of the whole run, by which the loss is divided: so raising it does not change the scale."""
    return max(response_tokens(study, 1), study.train.raised_response_tokens or 0)


def _shared(context: int, given: dict[str, int | None]) -> dict[str, int]:
    response = given["max_response_tokens"]
    room = context // 2 if response is None else context - response
    prompt = given["max_prompt_tokens"] or max(1, min(LONGEST["max_prompt_tokens"], room))
    return {
        "max_prompt_tokens": prompt,
        "max_response_tokens": max(1, min(LONGEST["max_response_tokens"], context - prompt)),
        "max_feedback_chars": max(50, min(LONGEST["max_feedback_chars"], prompt)),
    }


def _filled(study: Study, lengths: dict[str, int | None]) -> Study:
    return study.model_copy(update={"rollout": study.rollout.model_copy(update=lengths)})


def _context_of(policy: PolicyConfig, study: Study, fetch: bool) -> int | None:
    own = Path(policy.model).is_relative_to(study.results)  # a folder, whatever the hub has of that name
    return context_length(policy.model, policy.revision, fetch=fetch and not own)


def context_length(model: str, revision: str | None = None, *, fetch: bool = False) -> int | None:
    """Tokens of prompt and answer together, from the config.json of a folder or of the hub; None where it is not said.

    Args:
        fetch: False looks for the hub's file on this machine only.
    """
    folder = Path(model)
    file = folder / "config.json" if folder.is_dir() else _from_hub(model, revision, fetch)
    if file is None:
        return None
    try:
        config = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None  # loading the model says what is wrong with it
    length = config.get("max_position_embeddings") or config.get("text_config", {}).get("max_position_embeddings")
    return length if isinstance(length, int) and length > 1 else None


def _from_hub(model: str, revision: str | None, fetch: bool) -> Path | None:
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(model, "config.json", revision=revision, local_files_only=not fetch))
    except (ImportError, OSError, ValueError):
        return None
