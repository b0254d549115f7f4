"""The study on other processors: the same tasks, transcripts and steps, and losses that differ by rounding only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from writer_fixtures import small_catalog

from kevin.core.config import BaseModelConfig, TrainConfig
from kevin.train import base_model, base_model_check
from kevin.train.base_model import make_optimizers
from kevin.train.packing import answer_loss, pack, row_of
from kevin.train.records import nothing_learnable
from kevin.train.school_batches import encode
from kevin.train.tokenizer import train_tokenizer
from kevin.train.training import summarise_training
from kevin.writer.transcripts import transcripts

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = {
    "hidden_size": 64,
    "num_heads": 1,
    "num_layers": 2,
    "intermediate_size": 128,
    "num_transcripts": 60,
    "max_steps": 25,
}

OTHER_PROCESSORS = {
    "as it is": {},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "SSE": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}

SCRIPT = textwrap.dedent(
    """
    import hashlib, json, sys
    from pathlib import Path
    from kevin.core.config import Study, PolicyConfig
    from kevin.tasks.build import build_tasks
    from kevin.train import base_model
    from kevin.writer.corpus import scratch_corpus

    sizes, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    tasks = {"num_train": 2, "num_eval_level1": 1, "num_eval_level2": 1}
    study = Study(policies={"base": PolicyConfig(model="none")}, base_model=sizes, tasks=tasks)
    written = list(scratch_corpus(study))
    base_model.train_base_model(study, written, out)

    def digest(items):
        return hashlib.sha256(json.dumps(items).encode()).hexdigest()

    print(json.dumps({
        "tasks": digest([(t.id, t.source, part) for t, part in build_tasks(study)]),
        "transcripts": digest([t.model_dump(mode="json") for t in written]),
        "tokenizer": hashlib.sha256((out / "tokenizer.json").read_bytes()).hexdigest(),
        "losses": [json.loads(line)["loss"] for line in (out / "training.jsonl").read_text().splitlines()],
    }))
    """
)


def trained_as_on(processor: dict[str, str], out: Path) -> dict:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(SIZES), str(out)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **processor},
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.slow
def test_processors_agree_on_everything_but_rounding(tmp_path):
    found = {name: trained_as_on(env, tmp_path / name) for name, env in OTHER_PROCESSORS.items()}
    first = found.pop("as it is")
    losses = first.pop("losses")
    assert len(losses) == SIZES["max_steps"] and losses[-1] < 0.9 * losses[0]
    for name, other in found.items():
        assert other.pop("losses") == pytest.approx(losses, rel=2e-3), name
        assert other == first, name


class _Dtypes(TorchDispatchMode):
    """The dtypes of all tensors that any operator is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in (*args, *(out if isinstance(out, tuple | list) else [out])):
            if isinstance(value, torch.Tensor):
                self.seen.add(value.dtype)
        return out


def test_a_training_step_on_a_cpu_has_no_narrow_floats():
    written = list(transcripts(small_catalog(), "cpp", 4, 2, 0, first_answers=2, later_answers=2))
    tokenizer = train_tokenizer(base_model._texts(written), 1024)
    config = BaseModelConfig(**SIZES)
    model = base_model.new_model(config, len(tokenizer), end=1, pad=0)
    optimizers = make_optimizers(model)
    packed = pack(row_of(encode(written[:1], tokenizer)[0]), tokenizer.pad_token_id)
    with _Dtypes() as dtypes:
        answer_loss(model, packed).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.float32 in dtypes.seen
    assert not dtypes.seen & {torch.bfloat16, torch.float16}


def records(losses: list[float]) -> list[dict[str, float]]:
    return [{"step": i, "loss": loss, "elapsed_s": float(i)} for i, loss in enumerate(losses, 1)]


def test_the_summary_of_a_training_has_its_final_loss():
    summary = summarise_training(records([3.0] * 18 + [0.5, 0.3]))
    assert summary == {"num_steps": 20, "loss": pytest.approx(0.4), "elapsed_s": 20.0}


def test_a_base_model_that_has_not_learned_is_told_with_what_was_expected():
    config = BaseModelConfig(expected_loss=0.5, expected_correct_share=0.1)
    good = {"loss": 0.3, "num_correct": 4, "num_kernels": 40, "correct_share": 0.1}
    assert base_model_check.shortcomings(good, config) == []
    bad = {**good, "loss": 1.25, "num_correct": 0, "correct_share": 0.0}
    loss, share = base_model_check.shortcomings(bad, config)
    assert "1.25" in loss and "at most 0.5" in loss
    assert "0 of 40" in share and "at least 10 %" in share
    assert base_model_check.shortcomings({**good, "loss": float("nan")}, config)
    assert base_model_check.shortcomings(bad, BaseModelConfig()) == []


def test_a_training_in_which_nothing_is_ever_correct_is_told():
    config = TrainConfig(num_steps=10, stop_nothing_correct=3)
    wrong = [{"correct": 0.0, "num_kernels": 32}] * 3
    assert nothing_learnable(wrong[:2], config) is None
    problem = nothing_learnable(wrong, config)
    assert problem is not None and "96 kernels of the first 3 steps" in problem
    assert nothing_learnable([*wrong[:2], {"correct": 0.01, "num_kernels": 32}], config) is None
    assert nothing_learnable(wrong, config.model_copy(update={"stop_nothing_correct": None})) is None
    short = TrainConfig(num_steps=2, stop_nothing_correct=3)
    assert nothing_learnable(wrong[:2], short) is not None
    problem = nothing_learnable([{"correct": 0.0, "num_kernels": 0}] * 2, short)
    assert problem is not None and "no answer of the first 2 steps held a kernel" in problem
