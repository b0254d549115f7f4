"""A training that is killed anywhere, resumed, finished, refused or stopped, and the policy that comes of it."""

import itertools
import json
import shutil
from functools import cache
from pathlib import Path

import pytest
import torch
from train_fixtures import Killed, all_wrong_for, curve, judge, make_study, save_model, train

from kevin.core import files
from kevin.core.config import Study
from kevin.core.errors import ConfigError, DataError, DeviceError, HarnessError
from kevin.policy.load import load_policy
from kevin.train import grpo, grpo_run, records
from kevin.train.checkpoint import export_policy
from kevin.train.policy import RecordingPolicy
from kevin.train.records import TrainingStoppedError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def wholes(tmp_path_factory):
    """The curve of four steps that nothing interrupts, and its folder, by ``save_every``."""
    folder = tmp_path_factory.mktemp("whole")

    @cache
    def whole(save_every):
        records = train(folder, out=f"every-{save_every}", num_steps=4, save_every=save_every)
        return records, folder / f"every-{save_every}"

    return whole


def dying(original, is_time):
    """``original``, until it is time to be killed."""
    calls = itertools.count(1)

    def wrapper(*args, **kwargs):
        if is_time(next(calls)):
            raise Killed
        return original(*args, **kwargs)

    return wrapper


def killed(monkeypatch, owner, name, is_time, *args, **options):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, name, dying(getattr(owner, name), is_time))
        train(*args, **options)


@pytest.mark.slow
def test_a_killed_run_mends_what_it_would_have_mended(tmp_path, monkeypatch):
    """In the fifth step, since a task has to come up again: three trainings."""
    options = {"num_steps": 5, "flat_groups": "repair", "judge": all_wrong_for("a")}
    whole = train(tmp_path, out="whole", **options)
    killed(monkeypatch, grpo_run.StepObserver, "_record", lambda call: call == 5, tmp_path, **options)
    assert train(tmp_path, **options) == whole


MOMENTS = {
    "generate": (RecordingPolicy, "_remember", 25),
    "update": (grpo.KernelTrainer, "_compute_loss", 9),
    "log": (grpo_run.StepObserver, "_record", 3),
    "save": (grpo_run.StepObserver, "on_save", 2),
}


@pytest.mark.parametrize(
    ("when", "save_every"),
    [
        ("generate", 1),
        ("update", 2),
        ("save", 1),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [("generate", 2), ("update", 1), ("save", 2)]),
        *(pytest.param(when, n, marks=pytest.mark.slow) for when in ("judge", "log") for n in (1, 2)),
    ],
)
def test_killed_anywhere_it_continues_the_same_curve(tmp_path, monkeypatch, wholes, when, save_every):
    options = {"num_steps": 4, "save_every": save_every}
    if when == "judge":
        with pytest.raises(Killed):
            train(tmp_path, judge=dying(judge, lambda call: call == 4), **options)
    else:
        owner, name, at = MOMENTS[when]
        at = 1 if (when, save_every) == ("save", 2) else at
        killed(monkeypatch, owner, name, lambda call: call == at, tmp_path, **options)
    assert len(curve(tmp_path / "out")) < 4
    whole, folder = wholes(save_every)
    assert train(tmp_path, **options) == whole
    same_weights(folder, tmp_path / "out")


def same_weights(a, b):
    from safetensors.torch import load_file

    left, right = (load_file(x / "checkpoints/checkpoint-8/model.safetensors") for x in (a, b))
    assert all(torch.equal(left[k], right[k]) for k in left)


def test_a_resumed_step_generates_nothing_that_it_has(tmp_path, monkeypatch):
    """Killed in the gradient steps: the rollouts are there, neither the model nor the judge is asked again."""
    killed(monkeypatch, grpo.KernelTrainer, "_compute_loss", lambda call: True, tmp_path, num_steps=1)
    asked = []
    monkeypatch.setattr(RecordingPolicy, "_remember", lambda *a: asked.append("model"))
    train(tmp_path, num_steps=1, judge=lambda pairs: asked.append("judge") or judge(pairs))
    assert not asked


def test_more_steps_later_are_the_same_run(tmp_path, wholes):
    whole, _ = wholes(1)
    train(tmp_path, num_steps=2)
    assert train(tmp_path, num_steps=4)[:3] == whole[:3]


@pytest.mark.slow
def test_a_falling_learning_rate_goes_on_falling_after_a_kill(tmp_path, monkeypatch):
    options = {"num_steps": 4, "schedule": "linear"}
    whole = train(tmp_path, out="whole", **options)
    rates = [r["learning_rate"] for r in whole][1:]  # the first step warms up
    assert rates == sorted(set(rates), reverse=True) and 0 < rates[-1] < 0.3 * rates[0]
    killed(monkeypatch, grpo_run.StepObserver, "_record", lambda call: len(curve(tmp_path / "out")) == 2, tmp_path,
           **options)  # fmt: skip
    with pytest.raises(DataError, match=r"train\.num_steps: was 4, is 6"):
        train(tmp_path, **options | {"num_steps": 6})
    assert train(tmp_path, **options) == whole


@pytest.fixture
def finished(wholes, request):
    """A finished run of four steps: its records and a folder of the test's own."""
    records, folder = wholes(1)
    return records, Path(shutil.copytree(folder, folder.with_name(request.node.name)))


def test_a_finished_run_is_not_repeated_and_never_overwritten(finished):
    whole, out = finished
    (out / "summary.json").unlink()  # as the workflow does before it runs a step again
    again = train(out.parent, out=out.name, num_steps=4, judge=lambda pairs: pytest.fail("trained again"))
    assert again == whole and (out / "summary.json").exists()
    other = train(out.parent, out=out.name, num_steps=1, clip_high=0.4)
    assert len(other) == 1 and curve(out.with_name(f"{out.name}.old-1")) == whole


def test_a_changed_configuration_is_named(tmp_path):
    train(tmp_path, num_steps=1)
    (tmp_path / "out/finished.json").unlink()
    with pytest.raises(DataError, match=r"train\.clip_high: was 0\.28, is 0\.4"):
        train(tmp_path, num_steps=1, clip_high=0.4)
    with pytest.raises(DataError, match=r"reward\.gamma"):
        train(tmp_path, num_steps=1, reward={"gamma": 0.9})
    save_model(tmp_path / "base", seed=5)
    with pytest.raises(DataError, match=r"policies\.base\.files\.model\.safetensors: its content has changed"):
        train(tmp_path, num_steps=1)


def test_a_missing_checkpoint_starts_anew_and_an_unfinished_one_is_not_used(finished):
    whole, out = finished
    (out / "finished.json").unlink()
    for checkpoint in (out / "checkpoints").glob("checkpoint-*"):
        (checkpoint / "complete.json").unlink()
    assert train(out.parent, out=out.name, num_steps=4) == whole


def test_a_missing_model(tmp_path):
    make_study(tmp_path)
    shutil.rmtree(tmp_path / "base")
    (tmp_path / "base").mkdir()
    with pytest.raises(DataError, match="not a model folder"):
        train(tmp_path)
    save_model(tmp_path / "base")
    assert len(train(tmp_path, num_steps=1)) == 1  # nothing was lost by going on with the model that was missing


def test_unknown_runs_and_keys(tmp_path):
    study = make_study(tmp_path)
    with pytest.raises(ConfigError, match="no run 'nobody'"):
        study.for_run("nobody")
    raw = study.model_dump(mode="json")
    with pytest.raises(ValueError, match=r"runs\.tiny\.train\.num_turn"):
        Study.model_validate({**raw, "runs": {"tiny": {"train": {"num_turn": 3}}}})
    with pytest.raises(ValueError, match="init names a policy"):
        Study.model_validate({**raw, "runs": {"tiny": {"train": {"init": "nobody"}}}})


def test_a_loss_that_is_not_a_number(tmp_path, monkeypatch):
    """The step is not kept, the checkpoint before it is."""
    original = grpo.KernelTrainer._compute_loss

    def nan_in_step_2(self, model, inputs):
        loss = original(self, model, inputs)
        return loss * float("nan") if self.state.global_step >= 2 else loss

    monkeypatch.setattr(grpo.KernelTrainer, "_compute_loss", nan_in_step_2)
    with pytest.raises(TrainingStoppedError, match="step 2: loss = nan"):
        train(tmp_path)
    assert [r["step"] for r in curve(tmp_path / "out")] == [1]
    assert [p.name for p in (tmp_path / "out/checkpoints").iterdir()] == ["checkpoint-2"]


def test_out_of_memory_says_what_to_lower(tmp_path, monkeypatch):
    def out_of_memory(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr(grpo.GRPOTrainer, "training_step", out_of_memory)
    with pytest.raises(DeviceError, match=r"train\.micro_batch_size \(4\)"):
        train(tmp_path)


def test_a_broken_judge_ends_the_run_and_it_can_go_on(tmp_path, wholes):
    with pytest.raises(HarnessError, match="the judge failed"):
        train(tmp_path, num_steps=4, judge=lambda pairs: [HarnessError("no compiler")] * len(pairs))
    assert train(tmp_path, num_steps=4) == wholes(1)[0]


def test_the_stop_rule_ends_the_run_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "STOP_PATIENCE", 2)
    steps = train(tmp_path, num_steps=9, stop_not_okay=0.01, learning_rate=1e-9)
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert len(steps) == summary["num_steps"] == 2
    assert "expected opening" in summary["reason"]


def test_the_share_of_own_kernels_is_rewarded_also_after_a_resume(tmp_path, monkeypatch):
    def profiled(pairs):
        return [v.model_copy(update={"details": {"own_kernel_share": 0.5}}) for v in judge(pairs)]

    options = {"num_steps": 1, "own_kernel_weight": 2.0, "judge": profiled}
    whole = train(tmp_path, out="whole", **options)
    frame, _ = files.read_parquet(tmp_path / "whole/turns/step_00001.parquet", "train_turns")
    correct = frame[frame["outcome"] == "correct"]
    assert len(correct) and (correct["score"] - correct["speedup"] - 0.3).tolist() == pytest.approx(
        [1.0] * len(correct)
    )
    assert (frame[frame["outcome"] != "correct"]["score"] == 0).all()
    killed(monkeypatch, grpo.KernelTrainer, "_compute_loss", lambda call: True, tmp_path, **options)
    assert train(tmp_path, **options) == whole


def test_the_export_is_an_ordinary_policy(tmp_path, finished):
    export_policy(finished[1], tmp_path / "policy")
    untrained = make_study(finished[1].parent).policies["base"]
    policy = load_policy("trained", untrained.model_copy(update={"model": str(tmp_path / "policy")}))
    trained = torch.cat([p.flatten() for p in policy.model.parameters()])
    base = load_policy("base", untrained)
    assert not torch.equal(trained, torch.cat([p.flatten() for p in base.model.parameters()]))
    configs = [Path(folder, "config.json").read_text() for folder in (tmp_path / "policy", untrained.model)]
    assert json.loads(configs[0]) == json.loads(configs[1])
    with pytest.raises(DataError, match="no complete checkpoint"):
        export_policy(tmp_path / "nothing", tmp_path / "policy2")
