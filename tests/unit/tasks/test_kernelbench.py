"""The KernelBench loader, on a small folder in the same layout."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from kevin.core.config import KernelBenchSource
from kevin.core.errors import ConfigError, DataError
from kevin.tasks import kernelbench as kb
from kevin.tasks.build import write_split
from kevin.tasks.ops import call, render_module

NUM = 12


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for level in (1, 2):
        folder = tmp_path / "checkout" / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for number in range(1, NUM + 1):
            ops = [call("relu")] if level == 1 else [call("relu"), call("scale", c=number)]
            source = render_module(ops, {"batch_size": number, "dim": 4})
            (folder / f"{number}_Own_Task_{number}_.py").write_text(source)
        (folder / "README.md").write_text("not a task")
    return tmp_path / "checkout"


def git(folder: Path, *args: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", "-C", str(folder), *identity, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_folder_root_and_inner_folder(checkout):
    tasks = kb.load_folder(checkout, (1, 2))
    assert [t.id for t in tasks] == [f"kb/{level}/{n}" for level in (1, 2) for n in range(1, NUM + 1)]
    assert tasks[0].name == "Own_Task_1"
    assert tasks == kb.load_folder(checkout / "KernelBench", (1, 2))
    assert kb.load_kernelbench(KernelBenchSource(path=str(checkout), levels=(1,))) == tasks[:NUM]


def test_files_that_are_no_tasks_by_their_name_are_told(checkout, caplog):
    (checkout / "KernelBench/level1/my_task.py").write_text("")
    assert len(kb.load_folder(checkout, (1,))) == NUM
    assert "my_task.py" in caplog.text and "<number>_<name>.py" in caplog.text
    assert "README" not in caplog.text


def test_two_tasks_of_one_number_are_named(checkout):
    (checkout / "KernelBench/level1/007_mine.py").write_text("")
    with pytest.raises(DataError, match=r"/7_Own_Task_7_\.py and .*/007_mine\.py: two tasks of number 7"):
        kb.load_folder(checkout, (1,))


@pytest.mark.parametrize(
    "name", ["true", "1_000", "-", "a b", "a'b", '"', "{x}", "%s", "..", "\u2028", "caf\u00e9", "cafe\u0301"]
)
def test_tasks_of_odd_names_are_found_by_them(checkout, name):
    path = checkout / "KernelBench/level1" / f"99_{name}.py"
    path.write_text("")
    tasks = kb.load_folder(checkout, (1,))
    assert kb.find_tasks([name], tasks) == kb.find_tasks([path.name], tasks) == {"kb/1/99"}
    if name.startswith("caf"):
        assert kb.find_tasks(["caf\u00e9"], tasks) == kb.find_tasks(["cafe\u0301"], tasks) == {"kb/1/99"}


def test_a_source_changes_with_its_tasks_and_nothing_else(checkout, tmp_path):
    source = KernelBenchSource(path=str(checkout), levels=(1,))
    level = checkout / "KernelBench/level1"
    first = kb.source_digests(source)
    assert len(first) == NUM
    os.utime(level / "1_Own_Task_1_.py", (0, 0))
    (checkout / "KernelBench/level2/1_Own_Task_1_.py").unlink()
    (level / "README.md").write_text("edited")
    assert kb.source_digests(source) == first
    (level / "99_New.py").write_text("")
    added = kb.source_digests(source)
    (level / "99_New.py").write_text("x = 1")
    edited = kb.source_digests(source)
    (level / "99_New.py").rename(level / "98_New.py")
    renamed = kb.source_digests(source)
    assert len({str(d) for d in (first, added, edited, renamed)}) == 4
    assert kb.source_digests(KernelBenchSource(path=str(tmp_path / "missing"))) == {}
    assert kb.source_digests(KernelBenchSource()) == {}


def test_a_missing_level_names_the_folder_and_the_key(checkout):
    with pytest.raises(DataError, match=r"level3: no tasks.*tasks\.kernelbench\.path"):
        kb.load_folder(checkout, (1, 3))


def test_known_flaws_reach_the_tasks(checkout):
    assert kb.flaws(2, 80) == ("constant_output",)
    assert kb.flaws(1, 39) == ("zeros_pass_at_1e-2", "reduction_skippable")
    assert kb.flaws(1, 40) == ()
    flagged = {t.id: t.flaws for t in kb.load_folder(checkout, (1, 2)) if t.flaws}
    assert flagged == {"kb/2/9": ("constant_output",)}


def test_a_levels_digest_that_is_not_the_pinned_one_is_said(checkout, caplog):
    kb.load_kernelbench(KernelBenchSource(path=str(checkout), levels=(1,)))
    assert "level 1 is not that of commit 423217d9fda9" in caplog.text


def test_split(checkout, tmp_path):
    tasks = kb.load_folder(checkout, (1, 2))
    pairs = kb.split(tasks, 9, seed=0, held_out=["kb/1/3"])
    parts = {part: [t.id for t, p in pairs if p == part] for part in ("train", "level1", "level2")}
    assert {p: len(ids) for p, ids in parts.items()} == {"train": 18, "level1": 3, "level2": 3}
    assert "kb/1/3" in parts["level1"]
    assert pairs == kb.split(tasks, 9, seed=0, held_out=["kb/1/3"])
    assert pairs != kb.split(tasks, 9, seed=1, held_out=["kb/1/3"])
    path = tmp_path / "split.yaml"
    write_split(path, pairs, seed=0)
    written = yaml.safe_load(path.read_text())
    assert {p: list(ids) for p, ids in written["parts"].items()} == parts
    with pytest.raises(ConfigError, match=r"num_train_per_level is 12, but level 1 has 12 tasks"):
        kb.split(tasks, 12, seed=0)


def test_level_3_is_held_out_as_a_whole(checkout):
    third = checkout / "KernelBench" / "level3"
    shutil.copytree(checkout / "KernelBench" / "level2", third)
    tasks = kb.load_folder(checkout, (1, 2, 3))
    pairs = kb.split(tasks, 11, seed=0, held_out=["kb/1/3"])
    assert [part for task, part in pairs if task.level == 3] == ["level3"] * NUM
    assert [p for p in pairs if p[0].level != 3] == kb.split(
        kb.load_folder(checkout, (1, 2)), 11, seed=0, held_out=["kb/1/3"]
    )


def test_git_at_a_pinned_commit(checkout, tmp_path, monkeypatch):
    git(checkout, "init", "--quiet")
    git(checkout, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "one")
    commit = git(checkout, "rev-parse", "HEAD")
    pinned = kb.load_folder(checkout, (1, 2))
    changed = checkout / "KernelBench" / "level1" / "1_Own_Task_1_.py"
    changed.write_text("changed = True\n")
    git(checkout, "commit", "--quiet", "-am", "two")
    monkeypatch.setattr(KernelBenchSource, "repository", checkout.as_uri())
    monkeypatch.setattr(KernelBenchSource, "commit", commit)
    source = KernelBenchSource()
    cache = tmp_path / "cache"
    assert kb.load_kernelbench(source, cache_dir=cache) == pinned
    checkout.rename(tmp_path / "gone")
    assert kb.load_kernelbench(source, cache_dir=cache) == pinned, "the second time comes from the cache"
    assert len(list(cache.iterdir())) == 1, "nothing else is left in the cache"


def test_a_repository_that_cannot_be_reached(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setattr(KernelBenchSource, "repository", (tmp_path / "absent").as_uri())
    source = KernelBenchSource()
    with pytest.raises(DataError, match=r"git fetch.*failed.*tasks\.kernelbench\.path"):
        kb.load_kernelbench(source, cache_dir=cache)
    assert list(cache.iterdir()) == []
    with pytest.raises(DataError, match="not a full commit id"):
        kb.fetch("file:///x", "main", cache)


def test_names_spell_sequences():
    assert kb.named_sequence("Conv2D_ReLU_BiasAdd") == ("conv2d", "relu", "bias_add")
    assert kb.named_sequence("Gemm_Scale_BatchNorm_") == ("linear", "scale", "batch_norm")
