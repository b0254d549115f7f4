"""Fine-tuning on own pruned correct answers."""

import pytest
from train_fixtures import Killed, make_study, train

from kevin.core import files
from kevin.train.checkpoint import export_policy

pytestmark = pytest.mark.usefixtures("one_thread")


def test_think_prune_train_learns_from_its_own_answers(tmp_path):
    records = train(tmp_path, num_steps=12, num_trajectories=8, method="think_prune")
    first, last = (sum(r["score"] for r in part) / 3 for part in (records[:3], records[-3:]))
    assert last > first + 0.2
    export_policy(tmp_path / "out", tmp_path / "policy")
    assert (tmp_path / "policy/model.safetensors").exists()


def test_think_prune_train_resumes_the_same_curve(tmp_path, monkeypatch):
    from kevin.train.think_prune import PruneTrainer

    whole = train(tmp_path, out="whole", method="think_prune")
    with monkeypatch.context() as patch:
        original = PruneTrainer.fit
        patch.setattr(
            PruneTrainer, "fit", lambda s, n, k: original(s, n, k) if n < 3 else (_ for _ in ()).throw(Killed())
        )
        with pytest.raises(Killed):
            train(tmp_path, out="killed", method="think_prune")
    assert train(tmp_path, out="killed", method="think_prune") == whole


def test_pruning_keeps_the_fastest_and_no_kernel_twice(tmp_path):
    from kevin.train.policy import Sample
    from kevin.train.rows import training_rows
    from kevin.train.think_prune import prune

    train(tmp_path, num_steps=1)
    frame, _ = files.read_parquet(tmp_path / "out/turns/step_00001.parquet", "train_turns")
    turns = files.turns_from_frame(frame)
    ids = list(dict.fromkeys(t.task_id for t in turns))
    rows = training_rows(turns, ids, num_trajectories=4, num_turns=2, config=make_study(tmp_path).reward)
    samples = [Sample([i], [i]) for i in range(len(rows))]
    kept = [rows[s.prompt_ids[0]] for s in prune(rows, samples, num_kept=1)]
    assert kept and len({(r.task_id, r.turn) for r in kept}) == len(kept)
    for r in kept:
        same = [x for x in rows if (x.task_id, x.turn) == (r.task_id, r.turn)]
        assert r.score == max(x.score for x in same)
    wide = [rows[s.prompt_ids[0]] for s in prune(rows, samples, num_kept=9)]
    assert len({(r.task_id, r.turn, r.played.kernel.digest) for r in wide}) == len(wide)
