"""What is learned from: written by processes, and with later turns from file to file: tasks, judged answers."""

from __future__ import annotations

import json
import pickle
import select
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from past_fixtures import TASKS, told
from school_fixtures import WritesHere, make_study, save_pretrained_model, shorten
from typer.testing import CliRunner
from writer_fixtures import small_catalog

from kevin.cli.app import app
from kevin.core import files
from kevin.core.config import Study
from kevin.core.errors import ConfigError, DataError, HarnessError
from kevin.core.types import Outcome, Timing, Verdict, digest
from kevin.rollout import run as run_module
from kevin.rollout import written
from kevin.tasks.kernelbench import named_sequence
from kevin.tasks.ops import call
from kevin.train import school
from kevin.writer import corpus, past_files
from kevin.writer.corpus import Lessons, Writers, school_tasks
from kevin.writer.evaluated import Evaluated, families
from kevin.writer.later_turns import read_plan, written_answers

NUM_TASKS, NUM_HELD_OUT = 5, 1
LESSONS = Lessons(TASKS, Evaluated())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_pretrained_model(tmp_path_factory.mktemp("given"), "llama", context=4096)


def with_past(study: Study, **settings) -> Study:
    sizes = {"num_past_tasks": NUM_TASKS, "later_share": 0.5}
    raw = study.model_dump(mode="json", exclude={"judge": {"version"}})
    raw["base_model"]["pretraining"] |= sizes | settings
    raw["base_model"]["max_tokens"] = 4096
    raw["policies"] = {"base": {"model": "<results>/base_model"}}
    raw["rollout"]["max_response_tokens"] = 8
    return Study.model_validate(raw)


@pytest.fixture(scope="module")
def study(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(past_files, "school_tasks", lambda study: LESSONS)
        patch.setattr(corpus, "school_tasks", lambda study: LESSONS)
        patch.setattr(corpus, "Writers", WritesHere)
        patch.setattr(past_files, "LARGEST", 2**18)
        shorten(patch)
        patch.setattr(run_module, "open_judge", every_kernel_is_correct)
        yield with_past(make_study(folder))


@contextmanager
def every_kernel_is_correct(study, store, show_progress):
    """In place of the judge: the longer a kernel, the faster."""

    def judge(pairs):
        return [_verdict(task, kernel) for task, kernel in pairs]

    yield judge


def _verdict(task, kernel):
    timing = Timing(median_us=1, iqr_us=0, min_us=1, num_samples=1)
    return Verdict(
        key=digest(task.digest, kernel.digest),
        task_digest=task.digest,
        kernel_digest=kernel.digest,
        protocol_digest="p",
        device_name="none",
        outcome=Outcome.CORRECT,
        timing=timing,
        reference_timing=timing.model_copy(update={"median_us": len(kernel.source) / 1000}),
    )


@pytest.fixture(scope="module")
def made(study, tmp_path_factory):
    """The tasks' file, and the writer's answers judged."""
    past_folder = tmp_path_factory.mktemp("past")
    tasks, turns = past_folder / "tasks.parquet", past_folder / "written/turns.parquet"
    past_files.write_past_tasks(study, tasks)
    written.judge_answers(study, past_files.past_answers(study, tasks), tasks, turns)
    return tasks, turns


def test_tasks_of_both_kinds_stand_in_the_file(study, made):
    tasks, _ = made
    assert [len(files.read_tasks(tasks, s)) for s in ("school", "held_out")] == [NUM_TASKS, NUM_HELD_OUT]
    drawn = past_files.read_past_tasks(study, tasks)
    assert [t.shown for t in drawn.all] == files.read_tasks(tasks)


def test_tasks_of_another_configuration_are_refused(study, made):
    other = with_past(study, num_past_tasks=NUM_TASKS + 1)
    with pytest.raises(DataError, match=r"~6 is not as this configuration.*kevin past tasks"):
        past_files.read_past_tasks(other, made[0])
    with pytest.raises(DataError, match="is not as this configuration"):
        past_files.read_past_tasks(study.model_copy(update={"seed": 1}), made[0])


def test_the_writers_answers_are_judged_and_told_as_a_rollouts_are(study, made):
    tasks, path = made
    turns, meta = files.read_turns(path)
    assert meta["policy"] == "written"
    drawn = {t.shown.id: t for t in past_files.read_past_tasks(study, tasks).all}
    assert len(turns) == 2 * len(drawn)
    for task in drawn.values():
        own = [t for t in turns if t.task_id == task.shown.id]
        assert [t.completion for t in own] == written_answers(task, "cpp", 1, 1, study.seed)
        assert all(read_plan(task.plain, "cpp", t.completion) for t in own)
        assert all(t.feedback == f"Correct, {float(f'{t.speedup:.2g}'):g}x the speed of PyTorch. It can be faster."
                   for t in own)  # fmt: skip


@pytest.mark.parametrize(
    ("device", "pool", "num"),
    [("cuda", {}, 3), ("cuda", {"device_workers": 2}, 2), ("cuda", {"gpus": (1,)}, 1), ("cpu", {}, 1)],
)
def test_the_schools_gpus_judge_for_it(study, tmp_path, monkeypatch, device, pool, num):
    given = []
    monkeypatch.setattr(written, "run_rollouts", lambda study, *args, **options: given.append(study.pool))
    training = study.base_model.pretraining.model_copy(update={"num_gpus": 3})
    asked = study.model_copy(
        update={
            "base_model": study.base_model.model_copy(update={"pretraining": training}),
            "judge": study.judge.model_copy(update={"device": device}),
            "pool": study.pool.model_copy(update=pool),
        }
    )
    past_files.write_past_tasks(asked, tmp_path / "tasks.parquet")
    tasks = tmp_path / "tasks.parquet"
    written.judge_answers(asked, past_files.past_answers(asked, tasks), tasks, tmp_path / "turns.parquet")
    assert [p.device_workers for p in given] == [num]


def test_answers_to_other_tasks_are_refused(study, made, tmp_path):
    tasks, turns = made
    (first, *_) = files.read_turns(turns)[0]
    files.write_turns(tmp_path / "foreign.parquet", [first.model_copy(update={"task_id": "l1/other~1"})], {})
    with pytest.raises(DataError, match=r"foreign\.parquet: task l1/other~1 is not in"):
        past_files.read_pasts(study, tasks, [turns, tmp_path / "foreign.parquet"])
    held_out = next(t.shown.id for t in past_files.read_past_tasks(study, tasks).held_out)
    files.write_turns(tmp_path / "few.parquet", [first.model_copy(update={"task_id": held_out})], {})
    with pytest.raises(DataError, match=r"few\.parquet: no judged answer"):
        past_files.read_pasts(study, tasks, [tmp_path / "few.parquet"])


def test_answers_of_several_files_are_one_past(study, made, tmp_path):
    tasks, turns = made
    task = past_files.read_past_tasks(study, tasks).school[0]
    more = [told(task, "no code", language="cpp")]
    files.write_turns(tmp_path / "more.parquet", more, {})
    pasts = past_files.read_pasts(study, tasks, [turns, tmp_path / "more.parquet"])
    assert [len(p.answers) for p in pasts.school] == [3] + [2] * (NUM_TASKS - 1)
    assert [len(p.answers) for p in pasts.held_out] == [2] * NUM_HELD_OUT
    assert pasts.identity != past_files.read_pasts(study, tasks, [turns]).identity


def test_later_turns_come_into_the_corpus_at_their_share(study, made):
    pasts = past_files.read_pasts(study, *made[:1], [made[1]])
    chunks = range(6)

    def numbers(kind, pasts=pasts, study=study):
        return [t.exchanges[0].turn for c in chunks for t in corpus.school_corpus(study, LESSONS, c, kind, pasts)]

    trained = numbers("trained on")
    assert len(trained) == 6 * corpus.CHUNK
    assert 0.4 < sum(n > 1 for n in trained) / len(trained) < 0.6
    assert set(numbers("held out")) == {1} and min(numbers("held out later")) == 2
    assert set(numbers("trained on", corpus.NO_PASTS)) == {1}
    assert min(numbers("trained on", study=with_past(study, later_share=1.0))) == 2
    held_out = {p.task.shown.id for p in pasts.held_out}
    tasks_of = {
        kind: {t.task_id for c in chunks for t in corpus.school_corpus(study, LESSONS, c, kind, pasts)}
        for kind in ("trained on", "held out later")
    }
    assert tasks_of["held out later"] == held_out and not tasks_of["trained on"] & held_out


def test_a_training_with_another_past_is_another(study, made, folder):
    pasts = past_files.read_pasts(study, made[0], [made[1]])
    fewer = pasts._replace(school=pasts.school[:2])
    identities = [school._identity(study, p.identity, str(folder)) for p in (pasts, fewer, corpus.NO_PASTS)]
    assert len(set(identities)) == 3


def test_the_command_wants_what_later_turns_go_on_from(study, made, tmp_path):
    config = tmp_path / "study.yaml"
    config.write_text(yaml.safe_dump(study.model_dump(mode="json")))

    def run(*options):
        return CliRunner().invoke(app, ["base-model", "--config", str(config), "--out", str(tmp_path / "m"), *options])

    assert "come together" in str(run("--past-tasks", str(made[0])).exception)
    assert "later_share is 0.5: later turns go on from" in str(run().exception)
    done = run("--past-tasks", str(made[0]), "--past", str(made[1]))
    assert done.exit_code == 0, done.exception
    assert "held_out_later_loss" in json.loads((tmp_path / "m" / "summary.json").read_text())
    raw = study.model_dump(mode="json") | {"base_model": {}}
    config.write_text(yaml.safe_dump(raw))
    refused = run("--past-tasks", str(made[0]), "--past", str(made[1]))
    assert "base_model.init is null" in str(refused.exception)


def test_feedback_is_as_long_as_the_base_model_s(study, made, tmp_path):
    nameless = study.model_copy(update={"results": "elsewhere"})
    with pytest.raises(ConfigError, match="<results>/base_model"):
        written.judge_answers(nameless, {}, made[0], tmp_path / "turns.parquet")


def test_the_corpus_does_not_depend_on_the_number_of_processes(folder, monkeypatch):
    study, lessons = make_study(folder), Lessons(small_catalog(), Evaluated())
    expected = [list(corpus.school_corpus(study, lessons, chunk)) for chunk in range(3)]
    with Writers(study, lessons, num_workers=2) as writers:
        chunks, held_out = writers.chunks(), writers.chunks(kind="held out")
        assert [next(chunks) for _ in range(3)] == expected
        assert next(held_out) == list(corpus.school_corpus(study, lessons, 0, "held out")) != expected[0]
        assert next(writers.chunks(35)) == expected[2][3:]
        for process in writers._pool._processes.values():
            process.kill()
        with pytest.raises(HarnessError, match="ended from outside"):
            next(writers.chunks(48))
        monkeypatch.setattr(corpus, "_LOOK_S", 0.01)
        with pytest.raises(BrokenExecutor):  # as for what is asked for in the moment in which a process ends
            writers._finished(Future())


def test_a_writing_process_hands_over_no_more_than_a_pipe_takes_at_once(folder):
    """One that was killed in the middle of its answer would be waited for without end."""
    with Writers(make_study(folder), Lessons(small_catalog(), Evaluated()), num_workers=1) as writers:
        sent = writers._pool.submit(corpus._write, 0, "trained on").result()
        assert len(pickle.dumps(sent)) < select.PIPE_BUF // 2
        assert len(Path(sent).read_bytes()) > select.PIPE_BUF
        next(writers.chunks())
        left = set(Path(sent).parent.glob("*.chunk"))
    assert Path(sent) in left
    assert not Path(sent).parent.exists()


def test_no_composition_like_an_evaluated_one_is_taught(folder, monkeypatch):
    def taught():
        return {tuple(op.name for op in t.ops) for t in school_tasks(study).tasks if t.level == 2}

    study = make_study(folder)
    monkeypatch.setattr(corpus, "NUM_COMPOSED", 30)
    monkeypatch.setattr(corpus, "NUM_SHAPES", 1)
    before = taught()
    assert len(before) > 10
    evaluated = next(s for s in sorted(before) if s[0] == "conv2d")
    like = TASKS[0].model_copy(update={"ops": (call("conv1d"), *map(call, evaluated[1:]))})
    monkeypatch.setattr(corpus, "evaluated_tasks", lambda study: [like])
    assert evaluated not in taught() < before


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("ConvTranspose3d_Scaling_AvgPool_BiasAdd_Scaling", "conv_transpose3d div_scalar avg_pool3d add_param scale"),
        (
            "Gemm_Subtract_GlobalAvgPool_LogSumExp_GELU_ResidualAdd",
            "linear sub_param global_avg_pool logsumexp gelu add",
        ),
        ("Conv2d_Min_Add_Multiply", "conv2d_pointwise min_scalar add_input mul_param"),
        ("Matmul_Sum_Max_AvgPool_Swish", "matmul_transposed_b sum_dim max_dim avg_pool1d silu"),
    ],
)
def test_families_know_both_ways_of_naming(name, ours):
    assert families(named_sequence(name)) == families(ours.split())
