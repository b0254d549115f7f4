"""A training that is killed anywhere, resumed, finished, refused or stopped, and the policy that comes of it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from train_fixtures import Killed, all_wrong_for, curve, judge, make_study, save_model, train

from kevin.core import files
from kevin.core.config import Study
from kevin.core.errors import ConfigError, DataError, DeviceError, HarnessError, UsageError
from kevin.policy.load import load_policy
from kevin.train import grpo, observer
from kevin.train.checkpoint import export_policy
from kevin.train.policy import RecordingPolicy
from kevin.train.stability import TrainingStoppedError

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_killed_run_mends_what_it_would_have_mended(tmp_path, monkeypatch):
    options = {"num_steps": 5, "flat_groups": "repair", "judge": all_wrong_for("a")}
    whole = train(tmp_path, out="whole", **options)
    original, num_calls = observer.StepObserver._record, 0

    def dying(*arguments):
        nonlocal num_calls
        num_calls += 1
        if num_calls == 5:
            raise Killed
        return original(*arguments)

    monkeypatch.setattr(observer.StepObserver, "_record", dying)
    with pytest.raises(Killed):
        train(tmp_path, **options)
    assert train(tmp_path, **options) == whole


@pytest.mark.parametrize("save_every", [1, 2])
@pytest.mark.parametrize("when", ["generate", "judge", "update", "log", "save"])
def test_killed_anywhere_it_continues_the_same_curve(tmp_path, monkeypatch, when, save_every):
    options = {"num_steps": 4, "save_every": save_every}
    whole = train(tmp_path, out="whole", **options)
    target = {
        "generate": (RecordingPolicy, "_remember"),
        "update": (grpo.KernelTrainer, "_compute_loss"),
        "log": (observer.StepObserver, "_record"),
        "save": (observer.StepObserver, "on_save"),
    }
    judging, num_calls = judge, 0
    at = {"generate": 25, "judge": 4, "update": 9, "log": 3, "save": 1 if save_every == 2 else 2}[when]

    def dying(original):
        def wrapper(*args, **kwargs):
            nonlocal num_calls
            num_calls += 1
            if num_calls == at:
                raise Killed
            return original(*args, **kwargs)

        return wrapper

    with monkeypatch.context() as patch:
        if when == "judge":
            judging = dying(judge)
        else:
            owner, name = target[when]
            patch.setattr(owner, name, dying(getattr(owner, name)))
        with pytest.raises(Killed):
            train(tmp_path, out="killed", judge=judging, **options)
    assert len(curve(tmp_path / "killed")) < 4
    assert train(tmp_path, out="killed", **options) == whole
    same_weights(tmp_path / "whole", tmp_path / "killed")


def same_weights(a, b):
    from safetensors.torch import load_file

    left, right = (load_file(x / "checkpoints/checkpoint-8/model.safetensors") for x in (a, b))
    assert all(torch.equal(left[k], right[k]) for k in left)


def test_a_resumed_step_generates_nothing_that_it_has(tmp_path, monkeypatch):
    """Killed in the gradient steps: the rollouts are there, neither the model nor the judge is asked again."""
    with monkeypatch.context() as patch:
        patch.setattr(grpo.KernelTrainer, "_compute_loss", lambda *a, **k: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            train(tmp_path, num_steps=1)
    asked = []
    monkeypatch.setattr(RecordingPolicy, "_remember", lambda *a: asked.append("model"))
    train(tmp_path, num_steps=1, judge=lambda pairs: asked.append("judge") or judge(pairs))
    assert not asked


def test_more_steps_later_are_the_same_run(tmp_path):
    whole = train(tmp_path, out="whole", num_steps=4)
    train(tmp_path, num_steps=2)
    assert train(tmp_path, num_steps=4)[:3] == whole[:3]


def test_a_falling_learning_rate_goes_on_falling_after_a_kill(tmp_path, monkeypatch):
    options = {"num_steps": 4, "schedule": "linear"}
    whole = train(tmp_path, out="whole", **options)
    rates = [r["learning_rate"] for r in whole][1:]  # the first step warms up
    assert rates == sorted(set(rates), reverse=True) and 0 < rates[-1] < 0.3 * rates[0]
    original = observer.StepObserver._record

    def dying(self, *args, **kwargs):
        if len(curve(tmp_path / "out")) == 2:
            raise Killed
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(observer.StepObserver, "_record", dying)
        with pytest.raises(Killed):
            train(tmp_path, **options)
    with pytest.raises(DataError, match=r"train\.num_steps: was 4, is 6"):
        train(tmp_path, **options | {"num_steps": 6})
    assert train(tmp_path, **options) == whole


def test_a_finished_run_is_not_repeated_and_never_overwritten(tmp_path):
    whole = train(tmp_path, num_steps=1)
    (tmp_path / "out/summary.json").unlink()  # as the workflow does before it runs a step again
    assert train(tmp_path, num_steps=1, judge=lambda pairs: pytest.fail("trained again")) == whole
    assert (tmp_path / "out/summary.json").exists()
    other = train(tmp_path, num_steps=1, clip_high=0.4)
    assert len(other) == 1 and curve(tmp_path / "out.old-1") == whole


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


def test_a_missing_checkpoint_starts_anew_and_an_unfinished_one_is_not_used(tmp_path):
    whole = train(tmp_path, num_steps=3)
    (tmp_path / "out/finished.json").unlink()
    for checkpoint in (tmp_path / "out/checkpoints").glob("checkpoint-*"):
        (checkpoint / "complete.json").unlink()
    assert train(tmp_path, num_steps=3) == whole


def test_a_model_without_a_chat_template(tmp_path):
    make_study(tmp_path)
    shutil.rmtree(tmp_path / "base")
    save_model(tmp_path / "base", template=None)
    with pytest.raises(UsageError, match="chat template"):
        train(tmp_path)


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


def test_a_broken_judge_ends_the_run_and_it_can_go_on(tmp_path):
    with pytest.raises(HarnessError, match="the judge failed"):
        train(tmp_path, num_steps=2, judge=lambda pairs: [HarnessError("no compiler")] * len(pairs))
    whole = train(tmp_path, out="whole", num_steps=2)
    assert train(tmp_path, num_steps=2) == whole


def test_the_stop_rule_ends_the_run_with_its_reason(tmp_path):
    records = train(tmp_path, num_steps=9, stop_not_okay=0.01, stop_patience=2, learning_rate=1e-9)
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert len(records) == summary["num_steps"] == 2
    assert "expected opening" in summary["reason"]


def test_the_share_of_own_kernels_is_rewarded_also_after_a_resume(tmp_path, monkeypatch):
    def profiled(pairs):
        return [v.model_copy(update={"details": {"own_kernel_share": 0.5}}) for v in judge(pairs)]

    whole = train(tmp_path, out="whole", num_steps=2, own_kernel_weight=2.0, judge=profiled)
    frame, _ = files.read_parquet(tmp_path / "whole/turns/step_00001.parquet", "train_turns")
    correct = frame[frame["outcome"] == "correct"]
    assert len(correct) and (correct["score"] - correct["speedup"] - 0.3).tolist() == pytest.approx(
        [1.0] * len(correct)
    )
    assert (frame[frame["outcome"] != "correct"]["score"] == 0).all()
    with monkeypatch.context() as patch:
        patch.setattr(grpo.KernelTrainer, "_compute_loss", lambda *a, **k: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            train(tmp_path, num_steps=2, own_kernel_weight=2.0, judge=profiled)
    assert train(tmp_path, num_steps=2, own_kernel_weight=2.0, judge=profiled) == whole


def test_the_export_is_an_ordinary_policy(tmp_path):
    train(tmp_path, num_steps=1)
    export_policy(tmp_path / "out", tmp_path / "policy")
    config = make_study(tmp_path).policies["base"].model_copy(update={"model": str(tmp_path / "policy")})
    policy = load_policy("trained", config)
    trained = torch.cat([p.flatten() for p in policy.model.parameters()])
    base = load_policy("base", make_study(tmp_path).policies["base"])
    assert not torch.equal(trained, torch.cat([p.flatten() for p in base.model.parameters()]))
    base_config = Path(make_study(tmp_path).policies["base"].model, "config.json")
    assert json.loads((tmp_path / "policy" / "config.json").read_text()) == json.loads(base_config.read_text())
    with pytest.raises(DataError, match="no complete checkpoint"):
        export_policy(tmp_path / "nothing", tmp_path / "policy2")
