"""The declared comparison: numbers recomputed by hand, pairs by seed, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from cli_fixtures import ROOT
from core_fixtures import make_task
from report_fixtures import scored
from typer.testing import CliRunner

from kevin.cli.app import app
from kevin.core.config import Study, load_study, validate_study
from kevin.core.errors import DataError
from kevin.core.files import read_tasks, write_csv, write_tasks
from kevin.core.identity import differences
from kevin.report.figures.replicates import by_task, by_task_data
from kevin.report.pooled import recipe_of
from kevin.report.published import Published, read_kernels
from kevin.report.replicates import COLUMNS, DECLARED, Found, Replicate, read_replicates, replicates_table
from kevin.tasks.build import read_frozen
from kevin.workflow.replicates import STORED

CONFIG = ROOT / "config"
TASKS = ("a", "b", "c")


def study_of(arm: str = "rl_multi", seed: int = 0, results: str = "results/replicates") -> Study:
    """The shipped comparison, of four kernels a task in place of 32."""
    study = load_study([CONFIG / f"{name}.yaml" for name in ("config", "gpu", "replicates")])
    raw = study.model_dump(mode="json", exclude={"judge": {"version"}}) | {"seed": seed, "evaluate": ["base", arm]}
    raw["report"] |= {
        "num_bootstrap": 500,
        "primary": study.report.primary.model_dump() | {"trajectories": 2, "turns": 2},
    }
    for policy in raw["policies"].values():
        policy["model"] = policy["model"].replace(raw["results"], results, 1)
    return validate_study(raw | {"results": results}, "test")


def replicate(arm: str, seed: int, turns: list[float], first: list[float], base: float = 1.0) -> Replicate:
    """By task the speedup of the fastest kernel of each way; 0: none is correct."""

    def way(speedups: list[float], shape: tuple[int, int]) -> pd.DataFrame:
        trajectories, length = shape
        outcomes = {}
        for task, speedup in zip(TASKS, speedups, strict=True):
            slower = [[0.5 * speedup or None] * length for _ in range(trajectories)]
            slower[-1][-1] = speedup or None
            outcomes[task] = slower
        return scored(arm, outcomes)

    ways = {"turns": way(turns, (2, 2)), "first": way(first, (4, 1)), "base": way([base] * 3, (4, 1))}
    return Replicate(arm, seed, ways)


def row(
    table: pd.DataFrame,
    policy: str,
    against: str,
    measure: str = "log_speedup",
    spent: str = "2 × 2",
    against_spent: str = "4 × 1",
) -> pd.Series:
    asked = "policy == @policy and against == @against and measure == @measure"
    found = table[table["without"].isna()].query(f"{asked} and spent == @spent and against_spent == @against_spent")
    assert len(found) == 1
    return found.iloc[0]


MULTI = [
    replicate("rl_multi", 1, turns=[2.0, 4.0, 0.5], first=[1.0, 1.0, 1.0]),
    replicate("rl_multi", 2, turns=[8.0, 1.0, 0.0], first=[2.0, 2.0, 2.0], base=2.0),
    replicate("rl_multi", 3, turns=[9.0, 9.0, 9.0], first=[9.0, 9.0, 9.0]),
]
SINGLE = [
    replicate("rl_single", 1, turns=[1.0, 1.0, 1.0], first=[1.0, 2.0, 1.0]),
    replicate("rl_single", 2, turns=[1.0, 1.0, 1.0], first=[2.0, 0.25, 3.0]),
]


def test_the_primary_endpoint_is_the_mean_over_tasks_and_paired_seeds_of_log_speed_with_eager_as_the_floor() -> None:
    table = replicates_table(Found([*MULTI, *SINGLE], study_of()))
    assert list(table.columns) == COLUMNS and table["endpoint"].tolist().count("primary") == 1
    primary = table.iloc[0]
    assert (primary["endpoint"], primary["policy"], primary["against"]) == ("primary", "rl_multi", "rl_single")
    assert (primary["spent"], primary["against_spent"]) == ("2 × 2", "4 × 1")
    by_seed = [
        (math.log(2) - 0.0) + (math.log(4) - math.log(2)) + (0.0 - 0.0),
        (math.log(8) - math.log(2)) + (0.0 - 0.0) + (0.0 - math.log(3)),
    ]
    assert primary["difference"] == pytest.approx(sum(by_seed) / 6)
    assert primary["difference_low"] < primary["difference"] < primary["difference_high"]
    half = (primary["difference_high"] - primary["difference_low"]) / 2
    assert primary["detectable"] == pytest.approx((1.96 + 0.8416) / 1.96 * half, rel=1e-3)
    told = primary[["num_seeds", "num_seeds_declared", "num_tasks", "num_unjudged"]]
    assert told.tolist() == [2, 6, 3, 0], "the third seed of one arm has no counterpart"
    levels = [math.log(2) + math.log(4) + math.log(8), math.log(2) + math.log(2) + math.log(3)]
    assert primary[["value", "against_value"]].tolist() == pytest.approx([level / 6 for level in levels])


def test_secondary_endpoints() -> None:
    table = replicates_table(Found([*MULTI, *SINGLE], study_of()))
    solved, fast = (row(table, "rl_multi", "rl_single", measure) for measure in ("solved", "fast_1"))
    assert solved["difference"] == pytest.approx(-1 / 6), "of seed 2 a task is solved by one arm alone"
    assert fast["difference"] == pytest.approx(np.mean([0, 0, -1, 0, 1, -1]))
    assert {solved["endpoint"], fast["endpoint"]} == {"secondary"}
    other = row(table, "rl_multi", "rl_multi", spent="4 × 1", against_spent="2 × 2")
    own = [math.log(2), math.log(4), 0.0, math.log(8), 0.0, 0.0, *[math.log(9)] * 3]
    assert other["difference"] == pytest.approx(
        np.mean([0.0] * 3 + [math.log(2)] * 3 + [math.log(9)] * 3) - np.mean(own)
    )
    assert (other["num_seeds"], other["endpoint"]) == (3, "secondary")
    gain = row(table, "rl_multi", "base model of rl_multi")
    assert gain["difference"] == pytest.approx(np.mean(own) - np.mean([0.0, math.log(2), 0.0]))
    assert row(table, "rl_single", "base model of rl_single", spent="4 × 1")["num_seeds"] == 2


def test_an_interval_reaches_beyond_the_differences_that_were_seen() -> None:
    single = [replicate("rl_single", seed, turns=[1.0] * 3, first=[2.0, 2.0, 0.0]) for seed in (1, 2, 3)]
    multi = [replicate("rl_multi", seed, turns=[2.0, 2.0 * (seed < 3), 0.0], first=[1.0] * 3) for seed in (1, 2, 3)]
    fast = row(replicates_table(Found([*multi, *single], study_of())), "rl_multi", "rl_single", "fast_1")
    assert fast["difference"] == pytest.approx(-1 / 9) and fast["difference_high"] > 0


def test_training_alone_is_compared_where_both_arms_spend_alike() -> None:
    table = replicates_table(Found([*MULTI, *SINGLE], study_of()))
    alike = table.query("policy == 'rl_multi' and against == 'rl_single' and spent == against_spent")
    assert alike["spent"].tolist() == ["4 × 1"] * 3 + ["2 × 2"] * 3 and set(alike["endpoint"]) == {"exploratory"}
    first, turns = alike.query("measure == 'log_speedup'")["difference"]
    assert first == pytest.approx(np.mean([0, -math.log(2), 0, 0, math.log(2), math.log(2) - math.log(3)]))
    assert turns == pytest.approx(np.mean([math.log(2), math.log(4), 0, math.log(8), 0, 0]))


def test_the_primary_endpoint_is_told_again_without_the_task_that_weighs_most() -> None:
    table = replicates_table(Found([*MULTI, *SINGLE], study_of()))
    left = table[table["without"].notna()]
    assert left[["endpoint", "measure", "without", "num_tasks"]].values.tolist() == [
        ["exploratory", "log_speedup", "a", 2]
    ]
    assert left["difference"].item() == pytest.approx((math.log(2) + 0 + 0 - math.log(3)) / 4)
    assert replicates_table(Found([*MULTI[:2]], study_of()))["without"].isna().all(), "no seed has both arms"


def test_what_could_not_be_run_is_told() -> None:
    table = replicates_table(Found(MULTI[:1], study_of()))
    primary, paper = table.iloc[0], row(table, "rl_multi_paper", "rl_single")
    assert math.isnan(primary["difference"]) and (primary["num_seeds"], primary["num_seeds_declared"]) == (0, 6)
    assert (paper["endpoint"], paper["num_seeds"], paper["num_seeds_declared"]) == ("exploratory", 0, 2)
    assert row(table, "rl_multi", "base model of rl_multi")["num_seeds"] == 1
    unjudged = MULTI[0].ways["turns"].assign(outcome=lambda turns: turns["outcome"].where(turns["task_id"] != "a"))
    found = [MULTI[0]._replace(ways={**MULTI[0].ways, "turns": unjudged}), SINGLE[0]]
    primary = replicates_table(Found(found, study_of())).iloc[0]
    assert (primary["num_tasks"], primary["num_unjudged"]) == (2, 4)
    assert primary["against_value"] == pytest.approx(math.log(2) / 2), "of the same tasks"
    assert primary["difference"] == pytest.approx((math.log(4) - math.log(2)) / 2)
    lacking = primary[["difference_low", "difference_high", "detectable"]]
    assert lacking.isna().all(), "one seed does not show how seeds differ"


def test_kernels_that_were_never_written_count_as_unjudged() -> None:
    shorter = MULTI[0].ways["turns"].query("not (task_id == 'b' and trajectory == 0 and turn == 2)")
    found = [MULTI[0]._replace(ways={**MULTI[0].ways, "turns": shorter}), SINGLE[0]]
    primary = replicates_table(Found(found, study_of())).iloc[0]
    assert (primary["num_tasks"], primary["num_unjudged"]) == (3, 1)


@pytest.mark.parametrize(
    ("left", "told"),
    [
        ("trajectory > 0 or task_id == 'a'", "seed 1 of rl_multi, first: not 4 × 1 kernels a task, as declared: b"),
        ("task_id != 'c'", "seed 1 of rl_multi, first: no answer to 1 tasks that others have, c first"),
    ],
)
def test_other_numbers_of_kernels_and_other_tasks_are_refused(left: str, told: str) -> None:
    fewer = MULTI[0].ways["first"].query(left)
    with pytest.raises(DataError, match=told):
        replicates_table(Found([MULTI[0]._replace(ways={**MULTI[0].ways, "first": fewer})], study_of()))
    twice = pd.concat([MULTI[0].ways["first"], MULTI[0].ways["first"].assign(split="level2")])
    with pytest.raises(DataError, match="some twice"):
        replicates_table(Found([MULTI[0]._replace(ways={**MULTI[0].ways, "first": twice})], study_of()))


def test_seeds_are_drawn_apart_from_tasks() -> None:
    """Of as many tasks as seeds, with draws in common, effects of both would cancel each other or add up."""
    effects = (-1.0, 0.0, 1.0)
    made = [
        replicate(arm, seed, turns=speedups, first=speedups)
        for seed, own in enumerate(effects, start=1)
        for arm, speedups in (
            ("rl_multi", [float(np.exp(3 + task - own)) for task in effects]),
            ("rl_single", [float(np.exp(1.5))] * 3),
        )
    ]
    primary = replicates_table(Found(made, study_of())).iloc[0]
    assert primary["difference"] == pytest.approx(1.5)
    assert primary["difference_high"] - primary["difference_low"] > 2


def publish(root: Path, made: Replicate, *others: Replicate, gpu: str = "NVIDIA H200", **changes: object) -> Path:
    """As `kevin publish` writes the answers and the configuration of one, with ``others``, arms of its base model."""
    results = f"{root}/{'-'.join([made.arm, *(other.arm for other in others)])}-{made.seed}"
    folder = Path(results, "published")
    folder.mkdir(parents=True)
    answers = []
    for one in (made, *others):
        policies = {"turns": (one.arm, None), "first": (one.arm, "parallel"), "base": ("base", "parallel")}
        answers += [
            own.assign(policy=policies[way][0], strategy=policies[way][1], num_completion_tokens=1)
            for way, own in one.ways.items()
            if way != "base" or one is made
        ]
    changes = {"evaluate": ["base", made.arm, *(other.arm for other in others)], **changes}
    write_csv(folder / "answers.csv", pd.concat(answers).drop(columns="score"))
    raw = study_of(made.arm, made.seed, results).model_dump(mode="json")
    (folder / "config.yaml").write_text(yaml.safe_dump(raw | changes))
    (folder / "answers.json").write_text(json.dumps({"machines": [[gpu]]}))
    return folder


def test_folders_make_the_same_table(tmp_path: Path) -> None:
    folders = [publish(tmp_path, MULTI[0], SINGLE[0]), publish(tmp_path, MULTI[1]), publish(tmp_path, MULTI[2])]
    folders.append(publish(tmp_path, SINGLE[1], pool={"kernels_in_flight": 4}))
    options = [word for folder in folders for word in ("--published", str(folder))]
    done = CliRunner().invoke(app, ["replicates", *options, "--out", str(tmp_path / "primary.csv")])
    assert done.exit_code == 0, done.output
    expected = replicates_table(Found([*MULTI, *SINGLE], study_of()))
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "primary.csv"), expected, check_dtype=False)


def test_the_figure_shows_what_each_task_adds(tmp_path: Path) -> None:
    folders = [publish(tmp_path, MULTI[0], SINGLE[0]), publish(tmp_path, MULTI[1]), publish(tmp_path, SINGLE[1])]
    write_tasks(folders[0] / "tasks.parquet", [(make_task(task), "level1") for task in TASKS], {})
    options = [word for folder in folders for word in ("--published", str(folder))]
    options += ["--out", str(tmp_path / "primary.csv"), "--figures", str(tmp_path)]
    done = CliRunner().invoke(app, ["replicates", *options])
    assert done.exit_code == 0, done.output
    assert min((tmp_path / f"by_task.{form}").stat().st_size for form in ("png", "pdf")) > 5000
    data = pd.read_csv(tmp_path / "by_task.csv")
    each, total = data.iloc[:-1].set_index(["task_id", "seed"]), data.iloc[-1]
    speedups = {
        ("a", 1): (2, 1),
        ("b", 1): (4, 2),
        ("c", 1): (1, 1),
        ("a", 2): (8, 2),
        ("b", 2): (1, 1),
        ("c", 2): (1, 3),
    }
    for name, place in (("speedup", 0), ("against_speedup", 1)):
        assert each[name].to_dict() == pytest.approx({key: both[place] for key, both in speedups.items()})
    assert each["value"].to_dict() == pytest.approx({key: ours / theirs for key, (ours, theirs) in speedups.items()})
    ends = pd.read_csv(tmp_path / "primary.csv").iloc[0][["difference", "difference_low", "difference_high"]]
    assert total[["value", "low", "high"]].tolist() == pytest.approx(np.exp(ends.astype(float)).tolist())


def test_a_point_at_which_eager_stands_for_a_kernel_is_hollow() -> None:
    found = Found([*MULTI, *SINGLE], study_of())
    figure, _ = by_task(found, [make_task(task) for task in TASKS])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["c", "b", "a", "all tasks"]
    for points, hollow in zip(figure.axes[0].collections, ({"a", "c"}, {"b", "c"}), strict=True):
        rows = ["cba"[int(row)] for _, row in points.get_offsets()]
        faces = {row for row, face in zip(rows, points.get_facecolors(), strict=True) if tuple(face) == (1, 1, 1, 1)}
        assert faces == hollow


@pytest.mark.parametrize(("found", "rows"), [([MULTI[0], SINGLE[0]], 4), (MULTI, 0)])
def test_one_seed_has_no_bar_in_the_figure_and_none_no_point(found: list[Replicate], rows: int) -> None:
    figure, data = by_task(Found(found, study_of()), [make_task(task) for task in TASKS])
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert shown == (["a", "b", "all tasks"] if rows else ["all tasks"]), "c differs in no seed"
    assert figure.get_supxlabel().startswith("Ratio" if rows else "No seed of both is there yet")
    assert len(data) == rows and data[["low", "high"]].isna().all(axis=None)


def test_folders_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    first = publish(tmp_path, MULTI[0])
    for others, told in (
        ([], "no finished replicate yet"),
        ([first, publish(tmp_path / "again", MULTI[0])], "seed 1 of rl_multi is there twice"),
        (
            [first, publish(tmp_path, SINGLE[0], ceiling_kernels=99)],
            "made with other settings .*ceiling_kernels: was 8",
        ),
        ([publish(tmp_path, MULTI[1], evaluate=["base"])], "no trained policy is evaluated"),
        ([first, publish(tmp_path, SINGLE[1], gpu="NVIDIA H100")], "on NVIDIA H100, but .* on NVIDIA H200"),
        ([publish(tmp_path, MULTI[2]._replace(seed=101))], "rl_multi-101/published: seed 101 of rl_multi was not decl"),
        ([publish(tmp_path, MULTI[2]._replace(seed=0))], "seed 0 of rl_multi was not declared"),
    ):
        with pytest.raises(DataError, match=told):
            read_replicates(others)
    keep_lines(first, lambda line: not (line.startswith("rl_multi") and ",parallel," in line))
    with pytest.raises(DataError, match="no answers of first of rl_multi"):
        read_replicates([first])


def keep_lines(folder: Path, wanted: Callable[[str], bool]) -> None:
    path = folder / "answers.csv"
    path.write_text("".join(line for line in path.open() if wanted(line)))


def test_base_models_whose_answers_are_missing_count_as_missing_seeds(tmp_path: Path) -> None:
    folders = [publish(tmp_path, MULTI[0]), publish(tmp_path, MULTI[1])]
    keep_lines(folders[1], lambda line: not line.startswith("base"))
    table = replicates_table(Found(*read_replicates(folders))).set_index(["policy", "against"])["num_seeds"]
    assert set(table["rl_multi", "base model of rl_multi"]) == {1}
    assert set(table["rl_multi", "rl_multi"]) == {2}


@pytest.mark.parametrize("folder", sorted((ROOT / STORED).glob("*/published")), ids=lambda f: f.parent.name)
def test_a_stored_replicate_is_as_it_was_declared(folder: Path) -> None:
    """Its settings, its tasks, every kernel that counts, and none without a verdict."""
    found, shared = read_replicates([folder])
    declared = load_study([CONFIG / f"{name}.yaml" for name in ("config", "gpu", "replicates")], judges=False)
    ours, theirs = ({**recipe_of(study), "evaluate": None} for study in (shared, declared))
    assert list(differences(ours, theirs)) == []
    files, frozen = Published(folder), read_frozen(CONFIG / "frozen/replicates.yaml")
    told = {task: text.split()[-1] for own in frozen.parts.values() for task, text in own.items()}
    assert {task.id: task.digest[:16] for task in read_tasks(files.tasks)} == told
    answers = pd.read_csv(files.answers)
    judged = answers[answers["policy"].isin(replicate.arm for replicate in found)].dropna(subset="kernel_digest")
    kernels = {(row["task_id"], row["kernel_digest"][:12]): row["outcome"] for row, _ in read_kernels(files)}
    keys = list(zip(judged["task_id"], judged["kernel_digest"], strict=True))
    assert [kernels.get(key) for key in keys] == judged["outcome"].tolist() and len(keys) > 1000
    spent = replicates_table(Found(found, shared)).query(
        "num_seeds > 0 and without.isna() and not against.str.startswith('base')"
    )
    assert set(spent["num_tasks"]) == {24} and set(spent["num_unjudged"]) == {0}


def test_the_stored_table_is_of_the_stored_replicates_and_a_fresh_computation_agrees() -> None:
    folders = sorted((ROOT / STORED).glob("*/published"))
    stored = pd.read_csv(ROOT / STORED / "primary.csv")
    found = Found(*read_replicates(folders))
    pd.testing.assert_frame_equal(stored, replicates_table(found), check_dtype=False)
    drawn = pd.read_csv(ROOT / STORED / "by_task.csv")
    pd.testing.assert_frame_equal(drawn, by_task_data(found), check_dtype=False)
    best: dict[str, dict[str, float]] = {}  # by arm and seed: of each task log speed, eager as the floor
    for folder in folders:
        answers, name = pd.read_csv(folder / "answers.csv"), folder.parent.name
        arm = name.split("-")[0]
        spent = answers["strategy"].isna() if arm == "rl_multi" else answers["strategy"] == "parallel"
        best[name] = {str(task): 0.0 for task in answers["task_id"]}
        for row in answers[spent & (answers["policy"] == arm)].itertuples():
            if row.outcome == "correct":
                best[name][row.task_id] = max(best[name][row.task_id], math.log(row.speedup))
    pairs = [
        (best[f"rl_multi-{seed}"], best.get(f"rl_single-{seed}")) for seed in range(1, 7) if f"rl_multi-{seed}" in best
    ]
    differences = [np.mean([a[task] - b[task] for task in a]) for a, b in pairs if b]
    assert stored.iloc[0]["num_seeds"] == len(differences) > 0
    assert stored.iloc[0]["difference"] == pytest.approx(np.mean(differences))


def test_arms_that_are_declared_are_those_of_the_configuration() -> None:
    assert set(DECLARED) == set(study_of().runs)
