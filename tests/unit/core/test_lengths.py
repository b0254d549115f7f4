"""Lengths that suit the model, and who wins over whom."""

import json
from pathlib import Path

import pytest

from kevin.core.config import load_study, validate_study
from kevin.core.errors import ConfigError
from kevin.core.lengths import KEYS, check_context, context_length, with_lengths

CONFIG = Path(__file__).parents[3] / "config"


def lengths(study, policy):
    rollout = with_lengths(study, policy).rollout
    return tuple(getattr(rollout, key) for key in KEYS)


def study(rollout=None, runs=None, **policies):
    base = {"model": "<results>/base_model"}
    raw = {"policies": {"base": base, **policies}, "rollout": rollout or {}, "runs": runs or {}}
    return validate_study(raw, "test")


def model_folder(tmp_path, **config):
    (tmp_path / "config.json").write_text(json.dumps(config))
    return {"model": str(tmp_path)}


@pytest.mark.parametrize(
    ("overlays", "expected"),
    [
        ((), (1536, 256, 400)),
        (("gpu",), (4608, 3584, 1200)),
        (("coder",), (8192, 2048, 2000)),
        (("paper",), (8192, 16384, 4000)),
    ],
)
def test_shipped_studies_keep_their_lengths(overlays, expected):
    shipped = load_study([CONFIG / "config.yaml", *(CONFIG / f"{o}.yaml" for o in overlays)])
    assert {lengths(shipped, policy) for policy in shipped.policies} == {expected}


def test_a_pretrained_base_model_shares_its_context():
    own = study()
    pretrained = own.base_model.model_copy(update={"init": "someone/model", "max_tokens": 3000})
    assert lengths(own.model_copy(update={"base_model": pretrained}), "base") == (1500, 1500, 1500)


def test_an_endpoint_beside_the_small_model_has_room_to_think():
    mine = {"backend": "openai", "base_url": "http://localhost:8000/v1", "model": "my-model"}
    both = study(mine=mine, recorded={"backend": "replay", "model": "r.jsonl"})
    assert lengths(both, "mine") == lengths(both, "recorded") == (8192, 16384, 4000)
    assert lengths(both, "base") == (1536, 256, 400)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 32768}, (8192, 16384, 4000)),
        ({"max_position_embeddings": 8192}, (4096, 4096, 4000)),
        ({"text_config": {"max_position_embeddings": 2048}}, (1024, 1024, 1024)),
        ({}, (8192, 16384, 4000)),
    ],
)
def test_a_local_model_shares_its_context(tmp_path, config, expected):
    assert lengths(study(mine=model_folder(tmp_path, **config)), "mine") == expected


def test_lengths_beyond_the_context_are_refused(tmp_path):
    mine = model_folder(tmp_path, max_position_embeddings=4096)
    fits = with_lengths(study(mine=mine), "mine")
    check_context(fits, "mine")
    longer = study(mine={**mine, "max_prompt_tokens": 4000}, rollout={"max_response_tokens": 97})
    with pytest.raises(
        ConfigError, match=r"prompts of 4000 tokens and answers of 97 do not fit .*, 4096 tokens: lower"
    ):
        check_context(with_lengths(longer, "mine"), "mine")


def test_the_hub_is_not_asked_for_what_the_study_makes_or_a_folder_without_a_model(tmp_path, monkeypatch):
    asked = []

    def download(model, file, *, revision, local_files_only):
        asked.append((model, local_files_only))
        raise OSError("no such model")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    check_context(with_lengths(study(), "base"), "base")
    for model in ("<results>/random_models/base", str(tmp_path), "someone/model"):
        both = study(mine={"model": model})
        check_context(with_lengths(both, "mine", fetch=True), "mine")
    assert [name for name, local in asked if not local] == ["someone/model"] * 2


def test_the_policy_wins_over_the_rollout_and_the_rest_follows(tmp_path):
    mine = {**model_folder(tmp_path, max_position_embeddings=4096), "max_response_tokens": 3000}
    assert lengths(study(mine=mine), "mine") == (1096, 3000, 1096)
    assert lengths(study(mine=mine, rollout={"max_prompt_tokens": 900, "max_response_tokens": 5}), "mine")[:2] == (
        900,
        3000,
    )


def test_what_was_trained_has_the_lengths_that_it_was_trained_with(tmp_path):
    trained = {"model": "<results>/policies/r"}
    one = study(trained=trained, runs={"r": {}})
    assert lengths(one, "trained") == lengths(one, "base")
    mine = {**model_folder(tmp_path, max_position_embeddings=4096), "max_prompt_tokens": 77}
    other = study(trained=trained, mine=mine, runs={"r": {"train": {"init": "mine"}}})
    assert lengths(other, "trained") == lengths(other, "mine") == (77, 4019, 77)
    with pytest.raises(ConfigError, match=r"runs\.r: train\.init trained is made by training that starts from it"):
        study(trained=trained, runs={"r": {"train": {"init": "trained"}}})


def test_a_damaged_or_missing_configuration_is_left_to_the_loader(tmp_path):
    (tmp_path / "config.json").write_text("{")
    assert context_length(str(tmp_path)) is None
    assert context_length(str(tmp_path / "missing/deeper/still")) is None
