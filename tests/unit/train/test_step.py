"""A step's rollouts: what the player asks of the judge beside verdicts."""

from __future__ import annotations

import pytest
from fake_pool import FakePool
from train_fixtures import FAST, TASKS, make_study
from transformers import AutoModelForCausalLM, AutoTokenizer

from kevin.core.lengths import with_lengths
from kevin.core.protocol import JudgeProtocol
from kevin.rollout.run import PoolJudge
from kevin.train.policy import RecordingPolicy
from kevin.train.step import StepPlayer


class _Pool(FakePool):
    def __init__(self, device):
        self.asked = []
        self.protocol = JudgeProtocol(device=device)

    def expect(self, tasks, dialect, num_kernels):
        self.asked.append("expect")

    def build_ahead(self, task, kernel):
        self.asked.append("build")

    def all_written(self, pairs):
        self.asked.append(f"{len(pairs)} written")

    def judge(self, pairs, on_verdict=None, on_new=None):
        self.asked.append("judge")
        return super().judge(pairs, on_verdict, on_new)

    def rest(self):
        self.asked.append("rest")


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_gpus_kernels_are_expected_and_built_as_they_are_answered_and_it_rests_once_after_all_turns_of_a_step(
    tmp_path, device
):
    """The gradient steps may need the memory in which the judge keeps references, which serve all turns of a step; the
    cores of a CPU generate."""
    study = make_study(tmp_path)
    study = with_lengths(study.model_copy(update={"judge": JudgeProtocol(device=device)}), "base").for_run("tiny")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "base")
    words = [*tokenizer.convert_tokens_to_ids([FAST]), tokenizer.eos_token_id]

    def generate(prompts, seeds, sampling, on_answer):
        for i in range(len(prompts)):
            on_answer(i, words, None)

    pool = _Pool(device)
    player = StepPlayer(study, "tiny", TASKS, PoolJudge(pool, show_progress=False), tmp_path / "run")
    played = player.play(1, [TASKS[0].id, TASKS[1].id], RecordingPolicy("trained", model, tokenizer, generate))
    assert len(played.rows) == 2 * study.train.group_size
    kernels = ["build"] * (2 * study.train.num_trajectories)
    turn = ["expect", *kernels, f"{len(kernels)} written", "judge"]
    assert pool.asked == ([*turn, *turn, "rest"] if device == "cuda" else ["judge", "judge"])
