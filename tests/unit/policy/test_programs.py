"""What engines share: the key of their compiled programs, on a double of vLLM's configuration, and Triton's folder."""

import dataclasses
import os
import sys
from types import ModuleType
from typing import Any

import pytest
from transformers import LlamaConfig, PretrainedConfig

from kevin.policy.vllm import shared_programs


@dataclasses.dataclass
class ModelConfig:
    """Hashes as vLLM's does: all fields, configurations as JSON."""

    model: str
    dtype: str
    hf_config: PretrainedConfig
    hf_text_config: PretrainedConfig

    def compute_hash(self) -> str:
        return repr({f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)})


def _plain(value: Any) -> Any:
    return value.to_json_string() if isinstance(value, PretrainedConfig) else value


def of_folder(folder: str, dtype: str = "bfloat16", **sizes: int) -> ModelConfig:
    config = LlamaConfig(**sizes)
    config._name_or_path = folder
    return ModelConfig(folder, dtype, config, config)


@pytest.fixture
def vllm(monkeypatch):
    module: Any = ModuleType("vllm.config.model")
    module.ModelConfig = ModelConfig
    for name in ("vllm", "vllm.config"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.config.model", module)


@pytest.mark.usefixtures("vllm")
def test_models_of_one_configuration_have_one_key_wherever_they_lie():
    before = ModelConfig.compute_hash
    base, trained = of_folder("base_model"), of_folder("policies/rl_multi")
    assert base.compute_hash() != trained.compute_hash()
    with shared_programs():
        assert base.compute_hash() == trained.compute_hash()
        assert base.compute_hash() != of_folder("base_model", hidden_size=64).compute_hash()
        assert base.compute_hash() != of_folder("base_model", dtype="float32").compute_hash()
    assert (base.model, base.hf_config._name_or_path) == ("base_model", "base_model")
    assert ModelConfig.compute_hash is before


@pytest.mark.usefixtures("vllm")
def test_what_another_version_keeps_elsewhere_is_filed_as_ever(monkeypatch):
    class Elsewhere(ModelConfig):
        hf_text_config = property(lambda self: {}[0])

        def __init__(self, folder: str) -> None:
            self.model = folder

        def compute_hash(self) -> str:
            return self.model

    monkeypatch.setattr(sys.modules["vllm.config.model"], "ModelConfig", Elsewhere)
    with shared_programs():
        assert Elsewhere("base_model").compute_hash() == "base_model"


def test_without_vllm_nothing_is_done(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with shared_programs():
        pass


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "home/.triton/cache"),
        ({"TRITON_HOME": "scratch"}, "scratch/.triton/cache"),
        ({"TRITON_CACHE_DIR": "mine", "TRITON_HOME": "scratch"}, "mine"),
    ],
)
def test_kernels_lie_where_triton_puts_them(monkeypatch, given, expected):
    for name in ("TRITON_CACHE_DIR", "TRITON_HOME"):
        monkeypatch.setenv(name, "")  # so that what is set here is undone
        monkeypatch.delenv(name)
    for name, value in {"HOME": "home", **given}.items():
        monkeypatch.setenv(name, value)
    with shared_programs():
        pass
    assert os.environ["TRITON_CACHE_DIR"] == expected
