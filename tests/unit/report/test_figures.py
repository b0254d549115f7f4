import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from core_fixtures import make_verdict
from report_fixtures import GOLDEN, golden_study, make_study, make_task, make_turn, make_turns

from kevin.core.config import PolicyConfig, Study
from kevin.core.errors import DataError, UsageError
from kevin.core.files import write_turns
from kevin.core.types import Outcome
from kevin.judge.store import VerdictStore
from kevin.report import paper
from kevin.report.catalogue import make_figure
from kevin.report.figures.case_study import layernorm_case_study
from kevin.report.figures.look import apart, entitle, policy_looks, save, theme
from kevin.report.figures.scaling import (
    fast_p,
    fast_p_data,
    outcomes,
    parallel_scaling,
    parallel_scaling_data,
    serial_scaling,
    serial_scaling_data,
)
from kevin.report.figures.split_map import serial_parallel_map
from kevin.report.figures.training import PAPER, run_looks, training
from kevin.report.metrics import best_of, trajectory_best
from kevin.report.recipes import OUTCOMES, policy_label
from kevin.report.scores import read_scores
from kevin.report.tables import read_baselines
from kevin.report.viewer import split_name

NO_BASELINES = read_baselines(None)
NOT_COMPILED = pd.Series(dtype="float64")


ANSWERS = [GOLDEN / "answers.csv"]
STUDY = golden_study()


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return read_scores(ANSWERS, STUDY)


def test_a_figure_is_written_in_two_forms_beside_its_data(tmp_path: Path) -> None:
    out = make_figure("outcomes", tmp_path, study=STUDY, scores=ANSWERS)
    assert [p.name for p in out] == ["outcomes.png", "outcomes.pdf", "outcomes.csv"]
    assert all(p.stat().st_size > 500 for p in out)
    data = pd.read_csv(out[2])
    assert data.groupby(["split", "policy", "turn"])["share"].sum().tolist() == pytest.approx([1.0] * 18)
    assert "ceiling" not in set(data["policy"])


def test_curves_are_those_of_the_tables() -> None:
    """The stored ones, of which `test_goldens` shows that they are made."""
    serial, parallel, fast = (
        pd.read_csv(GOLDEN / f"figures/{name}.csv").query("policy == 'base' and split == 'level1'")
        for name in ("serial_scaling", "parallel_scaling", "fast_p")
    )
    table = pd.read_csv(GOLDEN / "tables/level1.csv").query("policy == 'base' and baseline == 'eager'").iloc[0]
    own = serial[serial["row"] == "speedup"]
    assert own["x"].tolist() == [1, 2, 3] and own["value"].is_monotonic_increasing
    own = parallel[parallel["row"] == "correct"]
    assert own["x"].tolist() == [1, 2, 3]
    assert own["value"].iloc[[0, -1]].tolist() == pytest.approx(table[["correct_avg", "correct_best"]].tolist())
    assert own["value"].iloc[1] == pytest.approx(serial.query("row == 'correct' and x == 3")["value"].item())
    own = fast[fast["row"] == "avg"]
    assert own["value"].is_monotonic_decreasing and own["value"].iloc[0] == pytest.approx(table["correct_avg"])


def test_case_study_tells_best_trajectories_with_their_lines_and_what_changed(tmp_path: Path) -> None:
    study = make_study(2)
    turns = {name: make_turns([make_task("layer_norm", 1)], skill, 0) for name, skill in (("p0", 0.3), ("p1", 0.6))}
    turns["p0"] = [t.model_copy(update={"verdict_key": "aa"}) for t in turns["p0"]]
    VerdictStore(tmp_path).put(
        make_verdict(Outcome.CORRECT, key="aa", kernel_us=50.0, eager_us=200.0, details={"bandwidth_share": 0.25})
    )
    baselines = read_baselines(GOLDEN / "baselines.csv")
    files = {name: [tmp_path / f"{name}-level1/turns.parquet"] for name in turns}
    for name, own in turns.items():
        write_turns(files[name][0], own, {})
    with theme():
        figure, data = layernorm_case_study(files, baselines, tmp_path, study)
        legends = [ax.get_legend() for ax in figure.axes[:2]]
        texts = [text.get_text() for legend in legends for text in legend.get_texts()]
    assert data["policy"].unique().tolist() == ["p0", "p1", "paper"]
    own, other, published = (data[data["policy"] == name] for name in ("p0", "p1", "paper"))
    assert other["speedup"].max() == max(t.speedup or 0 for t in turns["p1"])
    assert published["speedup"].dropna().tolist() == [0.6, 4.27, 9.61]
    compiled = baselines.query("task_id == 'l1/layer_norm' and baseline == 'compile'")["ratio_to_eager"].item()
    assert own["compile_speedup"].tolist() == pytest.approx([compiled] * len(own))
    assert own["bound_speedup"].tolist() == pytest.approx([200 / (50 * 0.25)] * len(own))
    assert (published["compile_speedup"] < published["bound_speedup"]).all()
    assert pd.isna(own["diff_to"].iloc[0])
    for _, row in own[own["diff_to"].notna()].iterrows():
        assert row["diff_to"] < row["turn"]
        assert not row["diff"] or row["diff"].startswith(f"--- turn {row['diff_to']:.0f}\n+++ turn {row['turn']}")
    assert own["diff"].dropna().str.contains("\n[+]").any()
    assert f"torch.compile {compiled:.3g}×" in texts and "memory at a copy's speed 16×" in texts


def test_the_authors_lines_are_those_of_the_reference_measurement() -> None:
    path = Path(__file__).parents[3] / "results/reference/nvidia-h200/kernelbench_baselines.csv"
    rows = pd.read_csv(path).query("task_id == 'kb/1/40'").set_index("baseline")
    assert rows.loc["compile", "ratio_to_eager"] == pytest.approx(paper.COMPILE_LINE)
    num_bytes = 2 * 16 * 64 * 256 * 256 * 4
    assert rows.loc["eager", "median_us"] / (num_bytes / 4.3e6) == pytest.approx(paper.BOUND_LINE, rel=0.01)


def write_metrics(run: Path, records: list[dict[str, object]]) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


def test_marks_of_the_paper_stand_only_where_our_steps_go(tmp_path: Path) -> None:
    run = write_metrics(tmp_path / "multi", [{"step": s, "not_okay_ratio": 0.0} for s in range(60)])
    with theme():
        figure, _ = training([run], make_study(1))
        (ax,) = figure.axes
        places = [line.get_xdata()[0] for line in ax.get_lines() if len(line.get_xdata()) == 2]
        assert places == [40]
        assert ax.get_xlim()[1] < 100
        assert "step ~100" in figure.get_supxlabel()


@pytest.mark.parametrize(("num_steps", "num_lines"), [(10, 1), (60, 2)])
def test_few_steps_are_not_smoothed(tmp_path: Path, num_steps: int, num_lines: int) -> None:
    run = write_metrics(tmp_path / "multi", [{"step": s, "entropy": 1.0} for s in range(num_steps)])
    with theme():
        figure, _ = training([run], make_study(1))
        assert len(figure.axes[0].get_lines()) == num_lines


@pytest.mark.slow
@pytest.mark.parametrize("name", ["serial_scaling", "outcomes"])
def test_the_same_scores_give_the_same_bytes(tmp_path: Path, name: str) -> None:
    once, twice = (make_figure(name, tmp_path / when, study=STUDY, scores=ANSWERS) for when in ("once", "twice"))
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in twice]


def test_summaries_of_any_text_can_be_drawn(tmp_path: Path) -> None:
    study = make_study(1)
    text = "```cpp\nint x;\n```\nSummary: $\\frac{1 \x07 \U0001f600 <b> & __x__ " + "y" * 300
    write_turns(
        tmp_path / "p0-level1" / "turns.parquet", [make_turn("l1/layer_norm", 0, 1, Outcome.TIMEOUT, text=text)], {}
    )
    turns = [tmp_path / "p0-level1" / "turns.parquet"]
    out = make_figure("layernorm_case_study", tmp_path, study=study, turns=turns)
    assert pd.read_csv(out[2])["summary"].iloc[0].endswith("y" * 300)


def test_errors_name_the_cause(frame: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="serial_scaling"):
        make_figure("pie", tmp_path, study=STUDY)
    with pytest.raises(UsageError, match="no figure stability any more: the figure training shows"):
        make_figure("stability", tmp_path, study=STUDY)
    with pytest.raises(UsageError, match="--table"):
        make_figure("primary", tmp_path, study=STUDY)
    with pytest.raises(DataError, match="l1/layer_norm"):
        layernorm_case_study({}, NO_BASELINES, None, STUDY)
    with pytest.raises(DataError, match="nothing to plot"):
        fast_p(frame[frame["policy"] == "ceiling"], NO_BASELINES, STUDY)
    with pytest.raises(DataError, match="<policy>-<split>"):
        split_name(tmp_path / "rollouts" / "turns.parquet")
    assert split_name(Path("rollouts/multi-turn-level2/turns.parquet")) == ("multi-turn", "level2")


def test_training_curves(tmp_path: Path) -> None:
    lines = [{"step": s, "score": s / 10, "eta_s": 3} for s in (0, 1, 2)] + [{"step": 2, "score": 0.5}]
    run = write_metrics(tmp_path / "multi", lines)
    out = make_figure("training", tmp_path, study=make_study(1), runs=[run])
    data = pd.read_csv(out[2])
    logged = data[data["mark"].isna()]
    assert logged.drop(columns="mark").to_numpy().tolist() == [
        ["multi", 0, "score", 0.0],
        ["multi", 1, "score", 0.1],
        ["multi", 2, "score", 0.5],
    ]
    paper = data[data["run"] == PAPER]
    assert paper["value"].isna().all() and paper["step"].tolist() == [40, 50] and set(paper["metric"]) == {"score"}
    write_metrics(run, [{}])
    with pytest.raises(DataError, match="line 1"):
        make_figure("training", tmp_path, study=make_study(1), runs=[run])
    with pytest.raises(UsageError, match="--run-dir"):
        make_figure("training", tmp_path, study=make_study(1), runs=[])


def test_a_policy_looks_the_same_wherever_it_stands_and_no_two_alike() -> None:
    names = [f"p{i}" for i in range(12)]
    policies = {n: PolicyConfig(model="x", label=f"Policy {n}") for n in names}
    study = make_study(1).model_copy(update={"policies": policies, "evaluate": tuple(names)})
    looks = policy_looks({name: name for name in names}, study)
    assert len({(own.color, own.marker) for own in looks.values()}) == 12
    assert policy_looks({"p5": "p5"}, study)["p5"] == looks["p5"], "with others or alone"
    assert run_looks(["p5", "alone"], study)["p5"].color == looks["p5"].color
    policies["p1"] = policies["p1"].model_copy(update={"seed_of": "p0"})
    study = study.model_copy(update={"policies": policies})
    seeds = run_looks(["p0", "p1", "p2"], study)
    assert seeds["p0"].color == seeds["p1"].color == looks["p0"].color and seeds["p2"].color == looks["p1"].color


def test_a_policy_has_one_colour_in_every_figure(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Also in those of training, by the name of its run."""
    names = ["base", "single"]
    frame = frame[frame["policy"].isin([*names, "ceiling"])]
    runs = [tmp_path / run for run in names]
    for run in runs:
        write_metrics(run, [{"step": 1, "score": 1.0, "not_okay_ratio": 0.1}])
    expected = {policy_label(p, STUDY): own.color for p, own in run_looks(names, STUDY).items()}
    with theme():
        drawn = [draw(frame, STUDY)[0] for draw in (serial_scaling, parallel_scaling)]
        drawn += [fast_p(frame, NO_BASELINES, STUDY)[0], training(runs, STUDY)[0]]
        for figure in drawn:
            legends = [line for legend in figure.legends for line in legend.get_lines()]
            lines = [*figure.axes[0].get_lines(), *legends]
            found = {str(line.get_label()).partition(":")[0]: line.get_color() for line in lines}
            assert expected.items() <= found.items() or not set(expected) & set(found), found


def fast_p_of(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    return fast_p_data(scores, NOT_COMPILED, study)


def test_a_curve_is_the_mean_of_its_seeds(frame: pd.DataFrame) -> None:
    alone = STUDY.policies["multi_1"].model_copy(update={"seed_of": None})
    apart_study = STUDY.model_copy(update={"policies": {**STUDY.policies, "multi_1": alone}})
    frame = frame[frame["policy"].isin(["multi", "multi_1"])]
    for data in (serial_scaling_data, parallel_scaling_data, fast_p_of):
        apart = data(frame, apart_study).groupby(["split", "row", "x"])["value"].mean()
        joined = data(frame, STUDY).set_index(["split", "row", "x"])
        assert set(joined["policy"]) == {"multi"} and set(joined["label"]) == {"multi (2 seeds)"}
        assert joined["value"].to_dict() == pytest.approx(apart.to_dict())


def test_policies_are_drawn_at_as_many_trajectories_as_all_have(frame: pd.DataFrame) -> None:
    """More of them alone would raise a policy's curve."""
    with theme():
        figure, data = serial_scaling(frame, STUDY)
        said = figure.get_supxlabel()
    assert set(data["trajectories"].dropna()) == {2} and said.startswith("Best of 2 trajectories")
    own = data.query("policy == 'base' and split == 'level1' and row == 'correct' and x == 3")["value"].item()
    trajectories = trajectory_best(frame.query("policy == 'base' and split == 'level1'"))
    assert own == pytest.approx(best_of(trajectories, "correct", 2).mean())
    shares = fast_p_of(frame, STUDY).query("policy == 'base' and split == 'level1' and row == 'best' and x == 0")
    assert shares["value"].item() == pytest.approx(own)


def test_fast_p_goes_as_far_as_the_fastest_kernel_and_shows_torch_compile(frame: pd.DataFrame) -> None:
    frame = frame.assign(speedup=frame["speedup"] * 30)
    compiled = pd.Series({"l1/gelu": 2.0, "l1/softmax": 0.5})
    data = fast_p_data(frame, compiled, STUDY)
    assert data["x"].max() > frame.loc[frame["policy"] != "ceiling", "speedup"].max()
    own = data[(data["policy"] == "torch.compile") & (data["split"] == "level1")].set_index("x")["value"]
    assert (own[0.0], own[1.0], own[4.0]) == (1.0, 0.5, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("num_policies", [1, 3, 6])
def test_titles_and_legends_stay_inside_of_their_figure(num_policies: int) -> None:
    study = make_study(num_policies)
    rng = np.random.default_rng(0)
    rows = [
        {"policy": p, "split": split, "task_id": task, "trajectory": i, "turn": t, "similarity": np.nan}
        | {"outcome": rng.choice([o.value for o in OUTCOMES])}
        for p in (*study.evaluate, "ceiling")
        for split in ("level1", "level2")[: 1 + num_policies // 2]
        for task in ("a", "b")
        for i in range(8)
        for t in (1, 2)
    ]
    scores = pd.DataFrame(rows)
    scores["speedup"] = np.where(scores["outcome"] == "correct", 1.3, np.nan)
    with theme():
        drawn = [draw(scores, study)[0] for draw in (serial_scaling, outcomes, serial_parallel_map)]
        for figure in [*drawn, fast_p(scores, NO_BASELINES, study)[0]]:
            entitle(figure, "Is this a question that needs more than one line? " * 3)
            figure.draw_without_rendering()
            said = [text for text in figure.texts if text.get_text()]
            for part in (*said, *figure.legends):
                box = part.get_window_extent()
                assert box.x0 >= 0 and box.x1 <= figure.bbox.width
                assert box.y0 >= 0 and box.y1 <= figure.bbox.height


def test_a_run_of_one_step_can_be_seen(tmp_path: Path) -> None:
    run = write_metrics(tmp_path / "p0", [{"step": 1, "score": 1.0}])
    with theme():
        figure, _ = training([run], make_study(2))
        lines = figure.axes[0].get_lines()
        assert any(len(line.get_xdata()) == 1 and line.get_marker() not in ("", "None") for line in lines)
        figure.draw_without_rendering()
        assert all(t == int(t) for t in figure.axes[0].get_xticks())


def test_few_lines_have_their_names_beside_them(frame: pd.DataFrame, tmp_path: Path) -> None:
    with theme():
        figure, data = parallel_scaling(frame[frame["policy"].isin(["base", "single"])], STUDY)
        save(figure, data, tmp_path, "parallel_scaling", "What?")
        named = [text.get_text() for text in figure.axes[1].texts]
    assert {"base model", "single"} <= set(named) and not figure.legends


@pytest.mark.parametrize(
    ("heights", "found"),
    [
        ([0.1, 0.5, 0.9], [0.1, 0.5, 0.9]),
        ([0.5, 0.5], [0.45, 0.55]),
        ([0.52, 0.5, 0.1], [0.56, 0.46, 0.1]),
        ([0.5, 0.58, 0.62], [0.46666667, 0.56666667, 0.66666667]),
    ],
)
def test_names_of_near_lines_do_not_meet(heights: list[float], found: list[float]) -> None:
    assert apart(heights, 0.1) == pytest.approx(found)
