"""The coder study rehearsed: what would be made, and all of it at tiny shapes on a CPU, from nothing to the page."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
from core_fixtures import make_module
from safetensors.torch import load_file

from kevin.core.files import read_parquet
from kevin.report.captions import REHEARSAL

from .conftest import ROOT, Run
from .test_dag import jobs

CODER = (ROOT / "config/coder.yaml", ROOT / "config/coder_rehearsal.yaml")
OPERATORS = {19: "relu(x)", 21: "sigmoid(x)", 22: "tanh(x)", 29: "nn.functional.softplus(x)"}
"""By the number that KernelBench's task of it has, so that the kernel writer knows it."""
SHAPES = {
    **{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 700, "hidden_size": 32},
    **{"intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1},
    **{"max_position_embeddings": 32768, "tie_word_embeddings": False},
}
TINY = """
tasks:
  case_study: kb/1/19
  num_eval_level2: 0
  kernelbench: {path: tasks, levels: [1], num_train_per_level: 3, held_out: [kb/1/19]}
policies:
  base: {backend: transformers, random_shapes: shapes.json, dtype: float32}
rollout: {max_response_tokens: 12}
judge: {device: cpu, timing: {budget_s: 0.1}}
train:
  tasks_per_step: 2
  num_trajectories: 2
  num_turns: 2
  lora: {rank: 2, alpha: 4}
  micro_batch_size: 2
  dtype: float32
  generation: transformers
runs:
  rl_single: {train: {tasks_per_step: 2, num_trajectories: 4}}
report: {num_bootstrap: 100, primary: {trajectories: 1, turns: 2}}
"""


def test_it_trains_random_weights_and_no_base_model(snakemake: Run) -> None:
    found = jobs(snakemake("--dry-run", "--configfile", *CODER))
    assert found["write_random_model"] == 1 and found["train_policy"] == found["export_policy"] == 2
    assert found["run_rollouts"] == 3 and not {"train_base_model", "check_base_model"} & found.keys()
    real = jobs(snakemake("--dry-run", "--configfile", CODER[0]))
    assert "write_random_model" not in real and real["train_policy"] == 2
    assert jobs(snakemake("--dry-run", "--configfile", CODER[0], ROOT / "config/coder_small.yaml")) == real


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_from_nothing_to_the_page(snakemake: Run, folder: Path) -> None:
    """Minutes: two trainings of two steps each, three policies played, every table and figure."""
    level = folder / "tasks/level1"
    level.mkdir(parents=True)
    for number, operator in OPERATORS.items():
        (level / f"{number}_{operator.partition('(')[0].rpartition('.')[2]}.py").write_text(
            make_module(f"return torch.{operator}", "torch.rand(64, 2048)")
        )
    (folder / "shapes.json").write_text(json.dumps(SHAPES))
    (folder / "tiny.yaml").write_text(TINY)
    run = snakemake("--cores", "2", "--configfile", *CODER, folder / "tiny.yaml", timeout=1700)
    assert run.returncode == 0, run.stderr
    results = folder / "results/coder_rehearsal"
    turns, _ = read_parquet(results / "train/rl_multi/turns/step_00001.parquet", "train_turns")
    assert len(turns) == 8 and turns["outcome"].notna().all() and (turns["outcome"] == "correct").any()
    assert turns["completion"].nunique() == 8, "answers of the kernel writer, all of them different"
    record = json.loads((results / "train/rl_multi/metrics.jsonl").read_text().splitlines()[0])
    assert 0 < record["compiled"] <= 1 and record["completion_tokens"] <= 12
    policy = results / "policies/rl_multi"
    base, merged = (load_file(f / "model.safetensors") for f in (results / "random_models/base", policy))
    assert base.keys() == merged.keys() and (policy / "adapter/adapter_config.json").exists()
    assert (policy / "random_weights").exists(), "what is trained from random weights is a rehearsal, too"
    assert REHEARSAL in html.unescape((results / "report.html").read_text())
    assert REHEARSAL in (results / "tables/primary.csv").read_text()
