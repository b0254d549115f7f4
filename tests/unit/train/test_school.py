"""The school: conversations as samples and batches, the loss on answers, and a training that survives being killed."""

from __future__ import annotations

import json
import multiprocessing

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from school_fixtures import WritesHere, make_study, save_pretrained_model, shorten
from transformers import AutoModelForCausalLM, AutoTokenizer
from writer_fixtures import small_catalog

from golden import same_losses
from kevin.core.errors import ConfigError, DeviceError, HarnessError
from kevin.train import ranks, school, training
from kevin.train.pretrained import load_pretrained, unpack_weights
from kevin.train.school_batches import Sample, ahead, deal, encode, school_batches, summed_loss
from kevin.writer import corpus
from kevin.writer.corpus import Lessons, Writers
from kevin.writer.evaluated import Evaluated
from kevin.writer.transcripts import transcripts

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_pretrained_model(tmp_path_factory.mktemp("given"), "llama")


@pytest.fixture(scope="module")
def loaded(folder):
    return load_pretrained(str(folder))


SIX_STEPS = {"num_steps": 6, "learning_rate": 0.01, "micro_batch_tokens": 1000}


@pytest.fixture(scope="module", autouse=True)
def small_tasks():
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield


@pytest.fixture(scope="module")
def taught(folder, small_tasks, tmp_path_factory):
    """What six steps with a writing process leave."""
    out = tmp_path_factory.mktemp("taught") / "base_model"
    study = make_study(folder, **SIX_STEPS)
    with Writers(study, Lessons(small_catalog(), Evaluated())) as writers:
        school.train_school(study, writers, out)
    return out


def records_of(out):
    return [json.loads(line) for line in (out / "training.jsonl").read_text().splitlines()]


def losses_of(out):
    return [r["loss"] for r in records_of(out)]


def weights_of(out):
    return AutoModelForCausalLM.from_pretrained(out).state_dict()


def test_samples_are_prompts_by_the_chat_template_with_their_answers(loaded):
    _, tokenizer = loaded
    written = list(transcripts(small_catalog(), "cpp", 12, 4, 0, later_answers=2))
    assert {len(t.exchanges) for t in written} > {1}
    for transcript, samples in zip(written, encode(written, tokenizer), strict=True):
        answers = [(e.turn, a) for e in transcript.exchanges for a in e.answers]
        assert len(samples) == len(answers)
        for sample, (turn, answer) in zip(samples, answers, strict=True):
            text = tokenizer.decode(sample.tokens)
            conversation = transcript.conversation[: max(1, 2 * turn - 1)]
            prompt = tokenizer.apply_chat_template(
                [m.model_dump() for m in conversation], add_generation_prompt=True, tokenize=False
            )
            assert text == f"{prompt}{answer}{tokenizer.eos_token}"
            assert tokenizer.decode(sample.tokens[-sample.num_answer :]) == f"{answer}{tokenizer.eos_token}"


def test_the_loss_of_a_micro_batch_is_that_of_its_samples_alone(loaded):
    model, _ = loaded
    samples = [Sample([7, 8, 9, 10, 11], 2), Sample([20, 21, 22, 23, 24, 25, 26, 27], 3), Sample([5, 6], 1)]
    together = summed_loss(model, samples).item()
    alone = 0.0
    for tokens, num_answer in samples:
        ids = torch.tensor([tokens])
        labels = ids.clone()
        labels[:, :-num_answer] = -100
        alone += model(input_ids=ids, labels=labels).loss.item() * num_answer
    assert together == pytest.approx(alone, rel=1e-5)


def chunks_of(study, first=0):
    return WritesHere(study).chunks(first)


def test_batches_go_on_in_the_middle_of_a_chunk(loaded, folder):
    _, tokenizer = loaded
    study = make_study(folder)
    options = {"batch_tokens": 4000, "micro_batch_tokens": 3000, "longest": 2048}
    whole = school_batches(chunks_of(study), tokenizer, first=0, **options)
    batches = [next(whole) for _ in range(6)]
    assert all(b.num_tokens >= 4000 for b in batches)
    number = batches[2].next_conversation
    assert number % corpus.CHUNK
    rest = school_batches(chunks_of(study, number), tokenizer, first=number, **options)
    assert [next(rest) for _ in range(3)] == batches[3:]


def test_a_corpus_that_does_not_fit_is_refused(loaded, folder):
    _, tokenizer = loaded
    chunks = chunks_of(make_study(folder))
    made = school_batches(chunks, tokenizer, first=0, batch_tokens=10, micro_batch_tokens=10, longest=20)
    with pytest.raises(ConfigError, match="fits 20 tokens"):
        next(ahead(made))


def test_a_training_leaves_a_folder_and_what_it_recorded(folder, taught):
    assert sorted(p.name for p in taught.parent.iterdir()) == ["base_model"]
    records = records_of(taught)
    assert [r["step"] for r in records] == list(range(1, 7))
    assert [r["step"] for r in records if "held_out_loss" in r] == [2, 4, 6]
    assert records[-1]["held_out_loss"] < records[1]["held_out_loss"]
    summary = json.loads((taught / "summary.json").read_text())
    assert summary["num_steps"] == 6
    assert summary["init"] == str(folder)
    assert AutoModelForCausalLM.from_pretrained(taught).config.model_type == "llama"
    assert AutoTokenizer.from_pretrained(taught).chat_template


def test_its_losses_are_the_golden_ones(taught):
    """On any processor: they differ by rounding, which six steps make larger."""
    records = records_of(taught)
    found = {name: [r[name] for r in records] for name in ("loss", "grad_norm", "num_answer_tokens")}
    found["held_out_loss"] = [r["held_out_loss"] for r in records if "held_out_loss" in r]
    same_losses("base_model", "losses/school.json", found, rel=1e-3)


def test_a_school_may_start_from_unpacked_weights(folder, taught, tmp_path, monkeypatch):
    unpack_weights(str(folder), tmp_path / "unpacked")
    study = make_study(folder, **SIX_STEPS)
    missing = study.model_copy(update={"base_model": study.base_model.model_copy(update={"init": "package:none"})})
    school.train_school(missing, WritesHere(study), tmp_path / "from", tmp_path / "unpacked")
    one, other = weights_of(taught), weights_of(tmp_path / "from")
    assert all(torch.equal(one[k], other[k]) for k in one)
    assert json.loads((tmp_path / "from/summary.json").read_text())["init"] == "package:none"


def test_a_killed_training_goes_on_to_the_same_weights(folder, taught, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(school, "CHECKPOINT_S", 0)
    study = make_study(folder, **SIX_STEPS)
    whole = school.School.step

    def killed(self, set_gradients):
        if len(self.records) == 2:
            raise KeyboardInterrupt
        return whole(self, set_gradients)

    monkeypatch.setattr(school.School, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        school.train_school(study, WritesHere(study), tmp_path / "again")
    assert not (tmp_path / "again").exists()
    monkeypatch.setattr(school.School, "step", whole)
    with caplog.at_level("INFO"):
        school.train_school(study, WritesHere(study), tmp_path / "again")
    assert "going on after step 2" in caplog.text
    a, b = weights_of(taught), weights_of(tmp_path / "again")
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert losses_of(tmp_path / "again") == losses_of(taught)


@pytest.mark.slow
def test_two_devices_share_a_step_and_any_number_goes_on_after_one_was_lost(
    folder, taught, tmp_path, monkeypatch, caplog
):
    """From the last checkpoint, and to the same model but for rounding: how many there are is how it is computed, not
    what. It takes the seconds that a process of its own takes to import torch and transformers, twice."""
    monkeypatch.setattr(school, "school_devices", lambda num_gpus: [torch.device("cpu")] * num_gpus)
    monkeypatch.setattr(school, "CHECKPOINT_S", 0)
    one, two = make_study(folder, **SIX_STEPS), make_study(folder, num_gpus=2, **SIX_STEPS)
    firsts, add_up, write = ranks.Ranks.firsts, ranks.Ranks.add_up, school.Checkpoint.write
    shares = []

    def lost(self, model, loss):
        if len(shares) == 3:
            self.others.processes[0].kill()
        return add_up(self, model, loss)

    def interrupted(self, state):
        write(self, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(HarnessError, match=r"ended from outside.*num_gpus"):
        patch.setattr(ranks.Ranks, "firsts", lambda self, batch: shares.append(batch.shares) or firsts(self, batch))
        patch.setattr(ranks.Ranks, "add_up", lost)
        school.train_school(two, WritesHere(two), tmp_path / "model")
    assert len(shares) == 3 and all(len(step) == 2 and all(step) for step in shares)
    assert not torch.distributed.is_initialized() and not multiprocessing.active_children()
    with monkeypatch.context() as patch, caplog.at_level("INFO"), pytest.raises(KeyboardInterrupt):
        patch.setattr(school.Checkpoint, "write", interrupted)
        school.train_school(one, WritesHere(one), tmp_path / "model")
    with caplog.at_level("INFO"):
        school.train_school(two, WritesHere(two), tmp_path / "model")
    assert all(f"going on after step {n}" in caplog.text for n in (2, 3))
    assert losses_of(tmp_path / "model") == pytest.approx(losses_of(taught), rel=1e-4)
    a, b = weights_of(taught), weights_of(tmp_path / "model")
    for key, value in a.items():
        assert torch.allclose(value, b[key], atol=2e-4), key


@pytest.mark.slow
def test_what_another_device_meets_is_told(monkeypatch):
    """Another process has to import torch and transformers to meet it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    devices = [torch.device("cpu"), torch.device("cuda", 7)]
    with pytest.raises(HarnessError, match="failed on cuda:7"), ranks.start_ranks(devices, moves_a_model) as first:
        first.meet(torch.nn.Linear(1, 1))
    assert not multiprocessing.active_children()


def moves_a_model(other):
    torch.ones(1).to(other.devices[other.rank])


@pytest.mark.slow
def test_memory_that_another_device_lacks_is_told_and_nobody_waits():
    """Three processes: one more waits for what the last one will not add, and has nothing else to tell."""
    model = torch.nn.Linear(1, 1)
    with (
        pytest.raises(DeviceError, match="lower micro_batch_tokens"),
        ranks.start_ranks([torch.device("cpu")] * 3, lacks_memory) as first,
    ):
        first.meet(model)
        first.add_up(model, 0.0)
    assert not torch.distributed.is_initialized() and not multiprocessing.active_children()


def lacks_memory(other):
    model = torch.nn.Linear(1, 1)
    other.meet(model)
    if other.rank == 2:
        raise DeviceError("lower micro_batch_tokens")
    other.add_up(model, 0.0)


@given(st.lists(st.integers(1, 8000), max_size=30), st.integers(1, 5))
def test_samples_are_dealt_out_whole_in_order_of_length(lengths, num):
    samples = [Sample([0] * n, 1) for n in lengths]
    hands = deal(samples, num)
    assert len(hands) == num
    assert [len(s.tokens) for hand in hands for s in hand] == sorted(lengths, reverse=True)


def test_no_device_has_much_more_to_do_than_another():
    def effort(hand):
        return sum(len(s.tokens) for s in hand) + len(hand) * len(hand[0].tokens) ** 2 / 4500

    lengths = (7000, 6100, 5200, 4000, 3900, 3800, 3000, 2900, 2800, 2500, 2400, 2100, 1500, 1400, 1300)
    efforts = [effort(hand) for hand in deal([Sample([0] * n, 1) for n in lengths], 3)]
    assert max(efforts) < 1.25 * sum(efforts) / 3
    assert efforts[0] < effort([Sample([0] * n, 1) for n in lengths[::3]]), "than with lengths mixed"


def test_more_gpus_than_there_are_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert school.school_devices(1) == [torch.device("cuda", 0)]
    with pytest.raises(DeviceError, match="num_gpus is 2, and 1 can be seen"):
        school.school_devices(2)


def test_a_checkpoint_of_another_training_is_not_used(tmp_path, caplog):
    training.Checkpoint(tmp_path, "one").write({"records": []})
    assert training.Checkpoint(tmp_path, "one").read() == {"identity": "one", "records": []}
    assert training.Checkpoint(tmp_path, "other").read() is None
    assert "starts anew" in caplog.text
