"""What Snakemake would do with this or that configuration, beside the graphs that are stored; and what it refuses.
Nothing is run.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kevin.core.config import load_study
from kevin.workflow import slurm
from kevin.workflow.folder import claim_folder, save_config

from .conftest import ROOT, Run, command, run_here


def jobs(run: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Rule -> number of jobs of a dry run."""
    assert run.returncode == 0, run.stderr
    table = re.search(r"^job +count\n-.*\n((?:.+\n)+?)total +\d+$", run.stdout + run.stderr, re.MULTILINE)
    assert table, run.stdout + run.stderr
    return {name: int(count) for name, count in (line.split() for line in table.group(1).splitlines())}


def test_a_dry_run_writes_nothing(snakemake: Run, folder: Path) -> None:
    assert snakemake("--dry-run").returncode == 0, "as typed: profiles/default beside the Snakefile has the cores"
    assert not (folder / "results").exists()


@pytest.mark.parametrize(("num_gpus", "num_jobs"), [(3, 3), (4, 9)])
def test_more_gpus_than_policies_play_a_split_each(snakemake: Run, num_gpus: int, num_jobs: int) -> None:
    gpus = ("--resources", f"gpu={num_gpus}")
    run = snakemake("--dry-run", "-p", "--cores", "64", *gpus, "--configfile", ROOT / "config/gpu.yaml")
    assert jobs(run)["run_rollouts"] == num_jobs
    played = re.findall(r"--policy rl_multi --store \S+ (.+)", run.stdout + run.stderr)
    own = {name: f"--out results/gpu/rollouts/rl_multi-{name}/turns.parquet" for name in ("level1", "level2", "unseen")}
    each = [f"--split {name} {out}" for name, out in own.items()]
    together = [" ".join([*(f"--split {name}" for name in own), *own.values()])]
    assert sorted(played) == (each if num_jobs == 9 else together)


@pytest.mark.parametrize("num_gpus", [1, 4])
def test_several_gpus_train_and_play_a_base_model_while_one_checks_it(snakemake: Run, num_gpus: int) -> None:
    options = ("--dry-run", "--resources", f"gpu={num_gpus}", "--configfile", ROOT / "config/gpu.yaml")
    for target in ("train/rl_multi/summary.json", "rollouts/base-level1/turns.parquet"):
        found = jobs(snakemake(f"results/gpu/{target}", *options))
        assert found["train_base_model"] == 1 and ("check_base_model" in found) == (num_gpus == 1)
    for policy in ("base", "rl_multi"):
        scored = jobs(snakemake(f"results/gpu/scores/{policy}-level1.parquet", *options))
        assert scored["check_base_model"] == 1, "nothing is said of what was not checked"


def test_the_audit_trains_each_run_and_looks_at_its_kernels(snakemake: Run) -> None:
    overlay = ROOT / "config/audit.yaml"
    found = jobs(snakemake("--dry-run", "results/audit/figures/audit.png", "--configfile", overlay))
    assert found["train_policy"] == found["audit_kernels"] == 2
    assert found["make_table"] == found["draw_figure"] == 1 and "run_rollouts" not in found
    run = snakemake("--dry-run", "-p", "results/paper/tables/attacks.csv", "--configfile", ROOT / "config/paper.yaml")
    assert jobs(run) == {"table_attacks": 1}
    assert "kevin --log results/paper/logs/table_attacks.log bench attacks --device cuda" in run.stdout + run.stderr
    run = snakemake(
        "--dry-run", "-p", "results/paper/tables/judge_errors.csv", "--configfile", ROOT / "config/paper.yaml"
    )
    assert jobs(run) == {"table_judge_errors": 1} and "/tests/mutants" in run.stdout + run.stderr


@pytest.mark.parametrize("arms", ["rl_multi_paper", "rl_single,rl_multi"])
def test_a_replicate_is_one_seed_of_its_arms_from_their_base_model_to_their_kernels(snakemake: Run, arms: str) -> None:
    layers = ("--configfile", ROOT / "config/gpu.yaml", ROOT / "config/replicates.yaml")
    run = snakemake("--dry-run", "-p", *layers, "--config", "seed=2", f"arm={arms}")
    found, said, names = jobs(run), run.stdout + run.stderr, arms.split(",")
    once, each = {"build_tasks", "judge_past", "train_base_model", "publish"}, {"train_policy", "run_rollouts"}
    assert {found[rule] for rule in once} == {1} and {found[rule] for rule in each} == {len(names)}
    assert (found["run_search"], found["score_turns"]) == (1 + len(names), 3 * len(names))
    assert not {"judge_ceiling", "measure_baselines", "make_table", "draw_figure", "write_report"} & found.keys()
    assert set(re.findall(r"--(?:run|policy) (\w+)", said)) == {*names, "base"}
    own = f"results/replicates/{'-'.join(names)}-2"
    assert set(re.findall(r"--out (\S+?)/(?:\w|-|\.)+$", said, re.MULTILINE)) >= {own}
    assert not re.findall(rf"results/(?!{own.removeprefix('results/')}/)\S+", said)
    last = next(
        line for line in said.splitlines() if "input:" in line and f"{own}/base_model, " in line and "search" in line
    )
    for name in names:
        assert f"{own}/search/parallel/{name}-unseen/" in last and f"{own}/rollouts/{name}-unseen/" in last, (
            "the base model answers last"
        )


def test_replicates_are_asked_for_by_arm_and_compared_by_the_laptop_s_configuration(snakemake: Run) -> None:
    run = snakemake("--dry-run", "--configfile", ROOT / "config/gpu.yaml", ROOT / "config/replicates.yaml")
    assert run.returncode != 0
    assert "--config seed=1 arm=NAME[,NAME], of rl_multi, rl_multi_paper, rl_single" in run.stdout + run.stderr
    assert jobs(snakemake("--dry-run", "results/replicates/tables/primary.csv")) == {"compare_replicates": 1}


def test_a_pretraining_s_gpus_judge_what_it_goes_on_from(snakemake: Run, tmp_path: Path) -> None:
    overlay = tmp_path / "three.yaml"
    overlay.write_text("base_model: {pretraining: {num_gpus: 3}}\n")
    options = ("--dry-run", "--resources", "gpu=4", "--configfile", ROOT / "config/gpu.yaml", overlay)
    run = snakemake("results/gpu/base_model", *options)
    said = re.findall(r"^rule (\w+):\n(?:    .+\n)*?    resources: .*\bgpu=(\d)", run.stdout + run.stderr, re.MULTILINE)
    assert dict(said) == {"judge_past": "3", "train_base_model": "3"}


def test_ways_to_spend_kernels_are_made_by_name_or_where_the_report_shall_have_them(
    snakemake: Run, tmp_path: Path
) -> None:
    study = load_study([ROOT / "config/config.yaml"])
    num_rollouts = len(study.evaluate) * len(study.search.strategies)
    found = jobs(snakemake("--dry-run", "results/figures/search.png", "results/tables/search_turns.csv"))
    assert (found["run_search"], found["make_table"], found["draw_figure"]) == (num_rollouts, 2, 1)
    assert "run_rollouts" not in found, "they are rollouts of their own"
    overlay = tmp_path / "search.yaml"
    overlay.write_text(f"search: {{compared: [{', '.join(study.search.strategies)}]}}\n")
    found = jobs(run := snakemake("--dry-run", "-p", "--configfile", overlay))
    tables = re.findall(r"kevin .* table (\w+) .* --search results/search/parallel/", run.stdout + run.stderr)
    assert sorted(tables) == ["claims", "primary", "search", "table2"]
    assert found["run_search"] == num_rollouts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rollout:\n  num_turn: 3\n", "rollout.num_turn: unknown key"),
        (
            "over: gpu.yaml\n",
            "typo.yaml is laid over gpu.yaml, and says nothing without it: name config/gpu.yaml before it",
        ),
    ],
)
def test_configuration_errors_name_file_and_key(snakemake: Run, tmp_path: Path, text: str, said: str) -> None:
    overlay = tmp_path / "typo.yaml"
    overlay.write_text(text)
    run = snakemake("--dry-run", "--configfile", overlay)
    output = run.stdout + run.stderr
    assert run.returncode != 0
    assert said in output and str(overlay) in output
    assert "Traceback" not in output and '  File "' not in output, "no line of code is to be seen in it"


def test_a_target_behind_the_configuration_is_told_what_to_type(snakemake: Run, tmp_path: Path) -> None:
    overlay, broken, wide = (tmp_path / f"{name}.yaml" for name in ("own", "broken", "wide"))
    overlay.write_text("seed: 1\n", "utf-8-sig")
    broken.write_text("seed: [1\n")
    wide.write_text("seed: 1\n", "utf-16")
    target = "results/tables/level2.csv"
    for arguments, said in (
        (
            (overlay, target),
            f"snakemake: {target} would be read as configuration; targets come first: snakemake {target}",
        ),
        ((overlay, tmp_path / "none.yaml"), f"snakemake: {tmp_path}/none.yaml: no such configuration file"),
        ((overlay, broken), f"snakemake: {broken}: not valid YAML: "),
        ((overlay, wide), f"snakemake: {wide}: Snakemake reads UTF-8 alone; save it as UTF-8"),
    ):
        run = snakemake("--dry-run", "--configfile", *arguments)
        assert run.returncode != 0
        assert said in run.stdout + run.stderr and "Traceback" not in run.stdout + run.stderr
    assert "make_table" in jobs(snakemake(target, "--dry-run", "--configfile", overlay))


def test_two_runs_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kevin.workflow.folder.claim_folder", functools.partial(claim_folder, patience_s=0))
    (tmp_path / "config").symlink_to(ROOT / "config")
    lock = tmp_path / ".snakemake/running"
    lock.parent.mkdir()
    with lock.open("a+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        run = run_here(command(tmp_path, "results/split.yaml"))
    assert run.returncode != 0
    assert "another snakemake" in run.stdout + run.stderr
    assert not (tmp_path / "results").exists()


def test_a_dry_run_says_what_has_changed_and_what_is_not_there(snakemake: Run, tmp_path: Path, folder: Path) -> None:
    study = load_study([ROOT / "config/config.yaml"]).model_copy(update={"results": "made", "seed": 3})
    save_config(study, folder / "made/config.yaml")
    overlay = tmp_path / "replay.yaml"
    overlay.write_text(
        "results: made\npolicies: {recorded: {backend: replay, model: none.jsonl}}\nevaluate: [base, recorded]\n"
    )
    run = snakemake("made/tasks.parquet", "--dry-run", "--configfile", overlay)
    assert "build_tasks" in jobs(run), "no model is needed for it"
    assert "seed: was 3, is 0" in run.stdout + run.stderr
    run = snakemake("--dry-run", "--configfile", overlay)
    assert run.returncode != 0 and "none.jsonl, and no step of this study" in run.stdout + run.stderr
    for text, said in (
        (
            "tasks: {source: both, kernelbench: {path: my-tasks}}\n",
            "tasks.kernelbench.path: there is no folder my-tasks",
        ),
        ("base_model: {init: ./weights}\n", "base_model.init: there is no folder weights"),
    ):
        overlay.write_text(text)
        run = snakemake("--dry-run", "--configfile", overlay)
        assert run.returncode != 0 and said in run.stdout + run.stderr
        assert '  File "' not in run.stdout + run.stderr


def test_a_finished_study_gives_way_to_another_only_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real runs, of which the first stops before any step and the second takes files for made: three seconds."""
    held: list[object] = []
    monkeypatch.setattr("kevin.workflow.folder._held", held)
    (tmp_path / "config").symlink_to(ROOT / "config")
    study = load_study([ROOT / "config/config.yaml"]).model_copy(update={"results": "made", "seed": 3})
    made = tmp_path / "made"
    save_config(study, made / "config.yaml")
    (made / "baselines").mkdir()
    for number, name in enumerate(("baselines/cpu.parquet", "tasks.parquet", "report.html")):
        (made / name).write_text("of the finished study")
        os.utime(made / name, (1_000_000 * (number + 1),) * 2)
    overlay = tmp_path / "mine.yaml"
    overlay.write_text("results: made\n")
    asked = command(tmp_path, "made/baselines/cpu.parquet", "--cores", "1", "--configfile", overlay)
    run = run_here(asked)
    output = run.stdout + run.stderr
    assert run.returncode != 0 and "made holds a finished study with other settings:\n" in output
    assert "\n  seed: was 3, is 0\n" in output
    assert "would be replaced: measure_baselines." in output
    assert "Traceback" not in output and '  File "' not in output, "no line of code is to be seen in it"
    assert load_study([made / "config.yaml"]).seed == 3
    assert (made / "baselines/cpu.parquet").read_text() == "of the finished study"
    held.clear()
    run = run_here([*asked, "--touch", "--config", "replace=true"])
    assert run.returncode == 0, run.stdout + run.stderr
    assert load_study([made / "config.yaml"]).seed == 0


def test_partitions_of_a_profile_stay_names(snakemake: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[type] = []

    def keep(*settings: Any, real: Any = slurm.keep_names) -> None:
        real(*settings)
        given = [resources.get("slurm_partition") for resources in settings]
        seen.extend(type(partition.value) for partition in given if partition is not None)

    monkeypatch.setattr(slurm, "keep_names", keep)
    given = ("--default-resources", "slurm_partition=2024", "--set-resources", "make_table:slurm_partition=2025")
    assert snakemake("--dry-run", "results/split.yaml", *given).returncode == 0
    assert seen == [str, str]


def test_profiles_have_short_names() -> None:
    """As ``--profile slurm``: Snakemake looks for a folder of that name in the working directory."""
    copied = {"default", "site-example"}
    for path in (ROOT / "profiles").iterdir():
        assert path.name in copied or (ROOT / path.name).resolve() == path.resolve()


def test_every_file_in_a_command_is_quoted() -> None:
    """A folder of results may have a space in its name."""
    shells = {
        path.name: "".join(re.findall(r"^    shell:\n((?:        .*\n)+)", path.read_text(), re.MULTILINE))
        for path in (ROOT / "rules").glob("*.smk")
    }
    assert sum(commands.count("kevin") for commands in shells.values()) > 10
    bare = {name: re.findall(r"\{(?:output|log|input|wildcards)[^}:]*\}", text) for name, text in shells.items()}
    assert {name: found for name, found in bare.items() if found} == {}
