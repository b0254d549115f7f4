"""Training a tiny model against a judge by rule: learning, agreement with TRL, what the settings change."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from train_fixtures import all_wrong_for, failing_judge, make_study, train, verdict

from golden import same_losses
from kevin.core import files
from kevin.core.config import TrainConfig
from kevin.core.errors import ConfigError, HarnessError
from kevin.core.types import Outcome
from kevin.train import grpo, step
from kevin.train.records import TIMES, read_metrics

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def five_steps(tmp_path_factory):
    """Of the default settings: their records and the run's folder."""
    folder = tmp_path_factory.mktemp("five")
    return train(folder, num_steps=5), folder / "out"


def same_as_golden(name, records):
    """On any processor: numbers differ by rounding, and what was sampled not at all."""
    columns = ("loss", "grad_norm", "score", "correct", "entropy", "clip_ratio", "kl", "learning_rate")
    found = {column: [r[column] for r in records] for column in columns if column in records[0]}
    same_losses("train", f"losses/grpo/{name}.json", found, rel=1e-3, abs_=1e-5)


def test_its_losses_are_the_golden_ones(five_steps):
    same_as_golden("multi_turn", five_steps[0])


@pytest.mark.slow
def test_it_learns_to_write_the_faster_kernel(tmp_path):
    """Which takes 25 steps."""
    records = train(tmp_path, num_steps=25, num_trajectories=8)
    first, last = (sum(r["score"] for r in part) / 5 for part in (records[:5], records[-5:]))
    assert last > first + 0.5
    assert json.loads((tmp_path / "out/summary.json").read_text())["num_steps"] == 25


def test_what_is_written(five_steps):
    records, out = five_steps
    assert [r["step"] for r in records] == [1, 2, 3, 4, 5]
    wanted = {"score", "correct", "score_turn_2", "loss", "grad_norm", "entropy", "clip_ratio", "not_okay_ratio"}
    assert wanted <= records[0].keys()
    frame, meta = files.read_parquet(out / "turns/step_00002.parquet", "train_turns")
    assert len(frame) == 16 and meta["run"] == "tiny"
    assert {"completion", "outcome", "score", "return", "advantage"} <= set(frame.columns)
    assert records[1]["score"] == pytest.approx(frame["score"].mean())
    assert list((out / "tensorboard").iterdir())
    assert not list((out / "rollouts").glob("step_*")), "a checkpoint makes them dispensable"
    assert {p.name for p in (out / "checkpoints").iterdir()} == {"checkpoint-8", "checkpoint-10"}, "the newest are kept"
    for record in read_metrics(out / "metrics.jsonl"):
        parts = record[TIMES]
        assert all(parts[p] > 0 for p in ("generate", "judge", "model"))
        assert parts["generate"] + parts["judge"] + parts["model"] <= parts["step"], "no second is counted twice"


def watch(monkeypatch, owner, name, keep):
    """Has ``keep`` told of each call of a method: whose it is, and what it returns."""
    original = getattr(owner, name)

    def watched(self, *arguments, **options):
        result = original(self, *arguments, **options)
        keep(self, result)
        return result

    monkeypatch.setattr(owner, name, watched)


@pytest.mark.parametrize("advantage", ["group", "leave_one_out"])
def test_advantages_are_those_of_trl(tmp_path, monkeypatch, advantage):
    """TRL's positional normalisation of the same returns gives the same numbers, up to float32."""
    found = []

    def keep(trainer, batch):
        found.append((batch["advantages"].clone(), trainer._played.rows))

    watch(monkeypatch, grpo.GRPOTrainer, "_generate_and_score_completions", keep)
    train(tmp_path, judge=failing_judge(every=3), advantage=advantage)
    assert len(found) == 3 and any(theirs.abs().max() > 0.5 for theirs, _ in found)
    num_compared = num_with_failures = 0
    for trl, rows in found:
        own = torch.tensor([r.advantage for r in rows], dtype=torch.float32)
        for group in torch.arange(len(rows)).view(2, -1):
            known = sum(rows[i].return_ is not None for i in group)
            assert known > 1
            # Leave-one-out is the centred return times N / (N - 1), N the returns that there are.
            scale = known / (known - 1) if advantage == "leave_one_out" else 1.0
            torch.testing.assert_close(own[group], trl[group] * scale, rtol=1e-4, atol=1e-5)
            if own[group].abs().max() > 0.1:
                num_compared += 1
                num_with_failures += known < len(group)
    assert num_compared > num_with_failures > 0, "groups of kernels that differ, with one that has no verdict or none"


def test_failures_and_placeholders_have_no_gradient(tmp_path, monkeypatch):
    """A row without a return changes nothing: neither its tokens' loss nor its group's baseline."""
    seen = []

    def keep(trainer, batch):
        seen.append((trainer._played, batch))

    watch(monkeypatch, grpo.KernelTrainer, "_generate_and_score_completions", keep)

    def fails_on_wrong_ones(pairs):
        return [HarnessError("x") if k.source.strip() == "wrong" else verdict(k) for _, k in pairs]

    train(tmp_path, judge=fails_on_wrong_ones, num_trajectories=8)
    placeholders = failures = 0
    for played, batch in seen:
        for i, row in enumerate(played.rows):
            if row.return_ is None:
                assert float(batch["advantages"][i]) == 0.0
                failures += row.played is not None
            if row.played is None:
                placeholders += 1
                assert int(batch["tool_mask"][i].sum()) == int((batch["completion_mask"][i] == 0).sum())
    assert placeholders and failures


def test_trimming_changes_no_number(tmp_path, monkeypatch):
    calls = []
    original = grpo.KernelTrainer._get_per_token_logps_and_entropies

    def spy(self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, compute_entropy=False, **kw):
        arguments = (self, model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy)
        result = original(*arguments, **kw)
        with torch.no_grad():
            full = grpo.GRPOTrainer._get_per_token_logps_and_entropies(*arguments, **kw)
        calls.append((result[:2], full[:2], attention_mask[:, -logits_to_keep:].bool()))
        return result

    monkeypatch.setattr(grpo.KernelTrainer, "_get_per_token_logps_and_entropies", spy)
    train(tmp_path, num_steps=2)
    assert len(calls) >= 8
    for trimmed, full, mask in calls:
        for a, b in zip(trimmed, full, strict=True):
            if a is not None:
                torch.testing.assert_close(a.detach()[mask], b[mask], rtol=1e-5, atol=1e-5)


ALTERNATIVES = {
    "leave_one_out": {"loss": "grpo", "advantage": "leave_one_out"},
    "kl": {"kl_beta": 0.01},
    "single_turn": {"num_turns": 1, "num_trajectories": 8, "num_steps": 5},
    "two_passes": {"num_iterations": 2},
    "max_returns": {"reward": {"returns": "max", "gamma": 0.8, "correctness_weight": 1.0, "speedup_cap": 2.0}},
    "progress": {
        "advantage": "turn_leave_one_out",
        "reward": {"progress_weight": 1.0, "progress_over": "best"},
        "schedule": "linear",
    },
    "anchored": {"advantage": "turn", "first_turn_kl": 0.01, "flat_groups": "drop"},
}


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_losses_of_alternatives_are_the_golden_ones(tmp_path, name, monkeypatch):
    if name == "two_passes":  # of one gradient step each
        monkeypatch.setattr(TrainConfig, "updates_per_step", 1)
    records = train(tmp_path, **{"num_steps": 2, **ALTERNATIVES[name]})
    assert ("kl" in records[1]) == (name in ("kl", "anchored"))
    same_as_golden(name, records)


def test_only_tokens_at_which_the_policy_is_least_sure_have_a_gradient(tmp_path, monkeypatch):
    gradients, unsure = [], []
    original = grpo.KernelTrainer._get_per_token_logps_and_entropies

    def spy(self, *args, compute_entropy=False, **kw):
        logps, entropies, aux = original(self, *args, compute_entropy=compute_entropy, **kw)
        if logps.requires_grad:
            logps.retain_grad()
            gradients.append(logps)
            unsure.append((entropies.detach(), self._loss_inputs["completion_mask"].bool()))
        return logps, entropies, aux

    monkeypatch.setattr(grpo.KernelTrainer, "_get_per_token_logps_and_entropies", spy)
    train(tmp_path, num_steps=2, high_entropy_share=0.4)
    learned = 0
    for logps, (entropy, mask) in zip(gradients, unsure, strict=True):
        limit = torch.quantile(entropy[mask].float(), 0.6)
        assert not logps.grad[mask & (entropy < limit)].any()
        learned += int(logps.grad[mask & (entropy >= limit)].count_nonzero())
    assert learned


def test_micro_batches_of_flat_groups_are_not_gone_back_through_and_nothing_else_changes(tmp_path, monkeypatch):
    asked = []
    options = {"judge": all_wrong_for("a"), "num_iterations": 2, "micro_batch_size": 4, "num_steps": 3, "save_every": 3}
    watch(monkeypatch, grpo.KernelTrainer, "_teaches", lambda trainer, teaches: asked.append(teaches))
    records = train(tmp_path, out="as it is", **options)
    assert 0 < sum(asked) < len(asked)
    monkeypatch.setattr(grpo.KernelTrainer, "_teaches", lambda self, inputs: True)
    assert train(tmp_path, out="all of it", **options) == records
    (ours, theirs) = (
        load_file(next((tmp_path / out).glob("checkpoints/*/model.safetensors"))) for out in ("as it is", "all of it")
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_task_without_a_correct_kernel_is_mended_when_it_comes_up_next(tmp_path, monkeypatch):
    starts, original = [], step.refine

    def spy(tasks, *arguments, **options):
        starts.append({t.id: options["starts"].get(t.id) for t in tasks})
        return original(tasks, *arguments, **options)

    monkeypatch.setattr(step, "refine", spy)
    options = {"num_steps": 9, "flat_groups": "repair", "num_trajectories": 8, "judge": all_wrong_for("a")}
    records = train(tmp_path, **options)
    of_a = [s["l1/a"] for s in starts if "l1/a" in s]
    assert len(of_a) == 3 and of_a[0] is None and of_a[2] is None, "mended once, then begun anew"
    assert of_a[1].outcome is Outcome.INCORRECT and of_a[1].kernel is not None
    assert all(start is None for s in starts for task, start in s.items() if not task.endswith("/a"))
    repaired = [sum(v is not None for v in s.values()) / 2 for s in starts]
    assert [r.get("repairs", 0.0) for r in records] == repaired and max(repaired) > 0


def test_a_batch_that_does_not_divide(tmp_path):
    with pytest.raises(ValueError, match="16 samples cannot be divided"):
        make_study(tmp_path, micro_batch_size=3)
    study = make_study(tmp_path).for_run("tiny")
    with pytest.raises(ConfigError, match="multiple of the 4 processes"):
        grpo.grpo_config(study, tmp_path, 4, on_cpu=True)


def test_all_kernels_wrong_changes_nothing(tmp_path):
    """No variance, no gradient: the weights stay, and the record says that the groups were flat."""

    def all_wrong(pairs):
        return [verdict(k).model_copy(update={"outcome": Outcome.INCORRECT, "timing": None, "reference_timing": None,
                                              "rounds": ()}) for _, k in pairs]  # fmt: skip

    records = train(tmp_path, num_steps=2, judge=all_wrong, stop_nothing_correct=None)
    assert all(r["flat_groups"] == 1 and r["score"] == 0 and r["grad_norm"] == 0 for r in records)
    before = load_file(tmp_path / "base/model.safetensors")
    after = load_file(tmp_path / "out/checkpoints/checkpoint-4/model.safetensors")
    assert all(torch.equal(before[k], after[k]) for k in before)


def test_one_process_trains_on_one_gpu_of_several(tmp_path, monkeypatch):
    """The Trainer would spread a batch over all that it sees, also over the one that judges."""
    study = make_study(tmp_path).for_run("tiny")
    monkeypatch.setattr(grpo, "GRPOConfig", lambda **settings: SimpleNamespace(n_gpu=2, _n_gpu=2))
    assert grpo.grpo_config(study, tmp_path, 1, on_cpu=False)._n_gpu == 1


def test_autocast_is_for_gpus_and_leaves_the_weights_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(grpo, "GRPOConfig", lambda **settings: SimpleNamespace(n_gpu=1, **settings))
    for autocast, on_cpu, bf16 in ((True, False, True), (True, True, False), (False, False, False)):
        study = make_study(tmp_path, autocast=autocast).for_run("tiny")
        assert grpo.grpo_config(study, tmp_path, 1, on_cpu=on_cpu).bf16 is bf16
        assert study.train.dtype == "float32"


@pytest.mark.parametrize(
    ("device", "processes", "options", "expected"),
    [
        ("cuda", 1, {"generation": "vllm_colocate"}, True),
        ("cuda", 1, {"generation": "transformers"}, False),
        ("cuda", 1, {"generation": "vllm_colocate", "gradient_checkpointing": True}, True),
        ("cuda", 2, {"generation": "vllm_colocate"}, False),
        ("cpu", 1, {"generation": "vllm_colocate"}, False),
    ],
)
def test_rows_without_padding_are_for_one_gpu_that_does_not_generate_itself(device, processes, options, expected):
    args = SimpleNamespace(device=torch.device(device), world_size=processes)
    assert grpo.computes_in_rows(TrainConfig(**options), args) == expected


def test_only_first_turns_are_anchored(tmp_path):
    """Where the reference is the policy itself there is no divergence, and no gradient of it."""
    study = make_study(tmp_path, first_turn_kl=0.5).for_run("tiny")
    inputs = {"is_first_turn": torch.tensor([True, False]), "ref_per_token_logps": torch.zeros(2, 3)}
    logps = torch.full((2, 3), -1.0, requires_grad=True)
    grpo.KernelTrainer._anchor_first_turns_only(SimpleNamespace(_study=study, _loss_inputs=inputs), logps)
    assert inputs["ref_per_token_logps"].tolist() == [[0.0] * 3, [-1.0] * 3]
    assert not inputs["ref_per_token_logps"].requires_grad
