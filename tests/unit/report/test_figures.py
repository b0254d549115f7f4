import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from report_fixtures import make_study, make_turn, write_scores, write_study

from kevin.core.config import PolicyConfig, Study
from kevin.core.errors import DataError, UsageError
from kevin.core.files import read_turns, write_turns
from kevin.core.types import Outcome, Timing, Verdict
from kevin.judge.store import VerdictStore
from kevin.report import paper_marks
from kevin.report.captions import captions
from kevin.report.catalogue import FIGURES, make_figure
from kevin.report.figures.case_study import case_study_data, plot_case_study
from kevin.report.figures.look import apart, ask, policy_looks, save, theme
from kevin.report.figures.scaling import (
    fast_p,
    fast_p_data,
    parallel_scaling,
    parallel_scaling_data,
    serial_scaling,
    serial_scaling_data,
)
from kevin.report.figures.split_map import serial_parallel_map
from kevin.report.figures.training import PAPER, run_looks, stability, training, training_turns
from kevin.report.figures.turns import outcomes, turns
from kevin.report.metrics import best_of_k_by_task, task_values, trajectory_best
from kevin.report.palette import OUTCOMES
from kevin.report.scores import policy_label, read_scores
from kevin.report.tables import read_baselines
from kevin.report.trajectories import best_trajectories, split_name

NO_BASELINES = read_baselines(None)
NOT_COMPILED = pd.Series(dtype="float64")


class Made:
    def __init__(self, root: Path, study: Study) -> None:
        self.root, self.study = root, study
        self.files = write_study(root, study)
        self.scores = write_scores(root, study, self.files)
        self.frame = read_scores(self.scores, study)

    def figure(self, name: str, folder: str = "figures") -> pd.DataFrame:
        out = make_figure(name, self.root / folder, study=self.study, scores=self.scores, turns=self.files["turns"])
        assert [p.name for p in out] == [f"{name}.png", f"{name}.pdf", f"{name}.csv"]
        assert all(p.stat().st_size > 500 for p in out)
        return pd.read_csv(out[2])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("study"), make_study(2))


def best(made: Made, policy: str, split: str) -> pd.DataFrame:
    return task_values(trajectory_best(made.frame.query("policy == @policy and split == @split")))


def test_serial_scaling_ends_at_the_tables_value_and_never_falls(made: Made) -> None:
    data = made.figure("serial_scaling").query("policy == 'p1' and split == 'level2' and row == 'speedup'")
    assert data["x"].tolist() == [1, 2, 3, 4]
    assert data["value"].is_monotonic_increasing
    assert data["value"].iloc[-1] == pytest.approx(best(made, "p1", "level2")["speedup_best"].mean())
    assert (data["low"] <= data["value"]).all() and (data["value"] <= data["high"]).all()


def test_parallel_scaling_runs_from_the_mean_to_the_best(made: Made) -> None:
    data = made.figure("parallel_scaling").query("policy == 'p0' and split == 'level1' and row == 'correct'")
    values = best(made, "p0", "level1")
    assert data["x"].tolist() == [1, 2, 3, 4]
    assert data["value"].iloc[[0, -1]].tolist() == pytest.approx(
        values[["correct_avg", "correct_best"]].mean().tolist()
    )


def test_fast_p_starts_at_correctness_and_falls(made: Made) -> None:
    data = made.figure("fast_p")
    curve = data.query("policy == 'p0' and split == 'level1' and row == 'avg'")
    assert curve["value"].is_monotonic_decreasing
    assert curve["value"].iloc[0] == pytest.approx(best(made, "p0", "level1")["correct_avg"].mean())
    assert set(data.loc[data["policy"] == "ceiling", "row"]) == {"best"}


def test_outcome_shares_sum_to_one(made: Made) -> None:
    data = made.figure("outcomes")
    assert data.groupby(["split", "policy", "turn"])["share"].sum().tolist() == pytest.approx([1.0] * 16)
    assert "ceiling" not in set(data["policy"])


def test_case_study_tells_each_policys_best_trajectory_and_the_papers(made: Made) -> None:
    data = made.figure("layernorm_case_study")
    assert data["policy"].unique().tolist() == ["p0", "p1", "paper"]
    own = made.frame.query("policy == 'p1' and task_id == 'l1/layer_norm'")
    assert data.query("policy == 'p1'")["speedup"].max() == own["speedup"].max()
    assert data.query("policy == 'paper'")["speedup"].dropna().tolist() == [0.6, 4.27, 9.61]


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


def test_case_study_has_its_lines_and_says_what_changed(made: Made, tmp_path: Path) -> None:
    turns = [t for t in read_turns(made.files["turns"][0])[0] if t.task_id == "l1/layer_norm"]
    keyed = [t.model_copy(update={"verdict_key": "aa"}) for t in turns]
    timing = Timing(median_us=50, iqr_us=1, min_us=50, num_samples=5)
    VerdictStore(tmp_path).put(
        Verdict(key="aa", task_digest="t", kernel_digest="k", protocol_digest="p", device_name="A CPU",
                outcome=Outcome.CORRECT, timing=timing, details={"bandwidth_share": 0.25},
                reference_timing=timing.model_copy(update={"median_us": 200.0}))
    )  # fmt: skip
    baselines = read_baselines(made.files["baselines"][0])
    data = case_study_data({"p0": keyed}, made.study, baselines=baselines, store=tmp_path)
    own, published = data[data["policy"] == "p0"], data[data["policy"] == "paper"]
    compiled = baselines.query("task_id == 'l1/layer_norm' and baseline == 'compile'")["ratio_to_eager"].item()
    assert own["compile_speedup"].tolist() == [compiled] * len(own)
    assert own["bound_speedup"].tolist() == pytest.approx([200 / (50 * 0.25)] * len(own))
    assert (published["compile_speedup"] < published["bound_speedup"]).all()
    assert pd.isna(own["diff_to"].iloc[0])
    for _, row in own[own["diff_to"].notna()].iterrows():
        assert row["diff_to"] < row["turn"]
        assert not row["diff"] or row["diff"].startswith(f"--- turn {row['diff_to']:.0f}\n+++ turn {row['turn']}")
    assert own["diff"].dropna().str.contains("\n[+]").any()
    with theme():
        texts = [t.get_text() for ax in plot_case_study(data, made.study).axes for t in ax.texts]
    assert f"torch.compile {compiled:.3g}×" in texts and "memory at a copy's speed 16×" in texts


def test_the_authors_lines_are_those_of_the_reference_measurement() -> None:
    path = Path(__file__).parents[3] / "results/reference/nvidia-h200/kernelbench_baselines.csv"
    rows = pd.read_csv(path).query("task_id == 'kb/1/40'").set_index("baseline")
    assert rows.loc["compile", "ratio_to_eager"] == pytest.approx(paper_marks.COMPILE_LINE)
    num_bytes = 2 * 16 * 64 * 256 * 256 * 4
    assert rows.loc["eager", "median_us"] / (num_bytes / 4.3e6) == pytest.approx(paper_marks.BOUND_LINE, rel=0.01)


def test_marks_of_the_paper_stand_only_where_our_steps_go(tmp_path: Path) -> None:
    log = tmp_path / "multi" / "metrics.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps({"step": s, "not_okay_ratio": 0.0}) + "\n" for s in range(0, 60)))
    with theme():
        figure, _ = training([log.parent], make_study(1))
        (ax,) = figure.axes
        places = [line.get_xdata()[0] for line in ax.get_lines() if len(line.get_xdata()) == 2]
        assert places == [40]
        assert ax.get_xlim()[1] < 100
        assert "step ~100" in figure.legends[0].get_title().get_text().replace("\n", " ")


@pytest.mark.parametrize(("num_steps", "num_lines"), [(10, 1), (60, 2)])
def test_few_steps_are_not_smoothed(tmp_path: Path, num_steps: int, num_lines: int) -> None:
    log = tmp_path / "multi" / "metrics.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps({"step": s, "entropy": 1.0}) + "\n" for s in range(num_steps)))
    with theme():
        figure, _ = training([log.parent], make_study(1))
        assert len(figure.axes[0].get_lines()) == num_lines


@pytest.mark.slow
def test_the_same_scores_give_the_same_bytes(made: Made) -> None:
    for name in ("serial_scaling", "outcomes"):
        made.figure(name, "once"), made.figure(name, "twice")
        for end in ("png", "pdf", "csv"):
            one, two = (made.root / folder / f"{name}.{end}" for folder in ("once", "twice"))
            assert one.read_bytes() == two.read_bytes()


def test_best_trajectories_without_verdicts_are_none() -> None:
    turns = [
        make_turn("t", 0, 1, None),
        make_turn("t", 1, 2, Outcome.CORRECT, 0.5),
        make_turn("t", 1, 1, Outcome.INCORRECT),
        make_turn("t", 2, 1, Outcome.CORRECT, 0.9),
    ]
    assert [[t.trajectory for t in group] for group in best_trajectories(turns, "t", 5)] == [[2], [1, 1]]
    assert [t.turn for t in best_trajectories(turns, "t", 5)[1]] == [1, 2]


def test_summaries_of_any_text_can_be_drawn(tmp_path: Path) -> None:
    study = make_study(1)
    text = "```cpp\nint x;\n```\nSummary: $\\frac{1 \x07 \U0001f600 <b> & __x__ " + "y" * 300
    write_turns(
        tmp_path / "p0-level1" / "turns.parquet", [make_turn("l1/layer_norm", 0, 1, Outcome.TIMEOUT, text=text)], {}
    )
    turns = [tmp_path / "p0-level1" / "turns.parquet"]
    out = make_figure("layernorm_case_study", tmp_path, study=study, turns=turns)
    assert pd.read_csv(out[2])["summary"].iloc[0].endswith("y" * 300)


def test_every_figure_has_a_question_for_its_title() -> None:
    assert {f"figures/{name}" for name in FIGURES} == {key for key in captions() if key.startswith("figures/")}
    assert [name for name in FIGURES if not captions()[f"figures/{name}"].title.endswith("?")] == []


def test_errors_name_the_cause(made: Made, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="serial_scaling"):
        make_figure("pie", tmp_path, study=made.study)
    with pytest.raises(DataError, match="l1/layer_norm"):
        make_figure("layernorm_case_study", tmp_path, study=made.study, turns=made.files["turns"][-1:])
    ceiling = [p for p in made.scores if "ceiling" in p.name]
    with pytest.raises(DataError, match="nothing to plot"):
        make_figure("fast_p", tmp_path, study=made.study, scores=ceiling)
    with pytest.raises(DataError, match="<policy>-<split>"):
        split_name(tmp_path / "rollouts" / "turns.parquet")
    assert split_name(Path("rollouts/multi-turn-level2/turns.parquet")) == ("multi-turn", "level2")


def test_training_curves(tmp_path: Path) -> None:
    log = tmp_path / "multi" / "metrics.jsonl"
    log.parent.mkdir()
    lines = [{"step": s, "score": s / 10, "eta_s": 3} for s in (0, 1, 2)] + [{"step": 2, "score": 0.5}]
    log.write_text("\n".join(map(json.dumps, lines)))
    out = make_figure("training", tmp_path, study=make_study(1), runs=[log.parent])
    data = pd.read_csv(out[2])
    logged = data[data["mark"].isna()]
    assert logged.drop(columns="mark").to_numpy().tolist() == [
        ["multi", 0, "score", 0.0],
        ["multi", 1, "score", 0.1],
        ["multi", 2, "score", 0.5],
    ]
    paper = data[data["run"] == PAPER]
    assert paper["value"].isna().all() and paper["step"].tolist() == [40, 50] and set(paper["metric"]) == {"score"}
    log.write_text("{}\n")
    with pytest.raises(DataError, match="line 1"):
        make_figure("training", tmp_path, study=make_study(1), runs=[log.parent])
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


def test_a_policy_has_one_colour_in_every_figure(made: Made, tmp_path: Path) -> None:
    """Also in those of training, by the name of its run."""
    for run in made.study.evaluate:
        (tmp_path / run).mkdir()
        (tmp_path / run / "metrics.jsonl").write_text(
            json.dumps({"step": 1, "score": 1.0, "not_okay_ratio": 0.1}) + "\n"
        )
    runs = [tmp_path / run for run in made.study.evaluate]
    expected = {policy_label(p, made.study): own.color for p, own in run_looks(made.study.evaluate, made.study).items()}
    with theme():
        drawn = [draw(made.frame, made.study)[0] for draw in (serial_scaling, parallel_scaling, turns)]
        drawn += [
            fast_p(made.frame, NO_BASELINES, made.study)[0],
            *(draw(runs, made.study)[0] for draw in (training, stability)),
        ]
        for figure in drawn:
            lines = [*figure.axes[0].get_lines(), *figure.legends[0].get_lines()]
            found = {str(line.get_label()).partition(":")[0]: line.get_color() for line in lines}
            assert expected.items() <= found.items() or not set(expected) & set(found), found


def test_few_lines_have_their_names_beside_them(made: Made, tmp_path: Path) -> None:
    with theme():
        figure, data = parallel_scaling(made.frame, made.study)
        save(figure, data, tmp_path, "parallel_scaling", "What?")
        named = [text.get_text() for text in figure.axes[1].texts]
        assert {"base model", "multi-turn RL"} <= set(named) and not figure.legends[0].get_texts()


def fast_p_of(scores: pd.DataFrame, study: Study) -> pd.DataFrame:
    return fast_p_data(scores, NOT_COMPILED, study)


def test_a_curve_is_the_mean_of_its_seeds(made: Made) -> None:
    first, second = made.study.evaluate
    policies = {**made.study.policies, second: made.study.policies[second].model_copy(update={"seed_of": first})}
    together = made.study.model_copy(update={"policies": policies})
    for data in (serial_scaling_data, parallel_scaling_data, fast_p_of):
        apart = data(made.frame, made.study).groupby(["policy", "split", "row", "x"])["value"].first()
        joined = data(made.frame, together)
        assert second not in set(joined["policy"])
        own = joined[(joined["policy"] == first) & joined["x"].notna()]
        assert set(own["label"]) == {f"{policy_label(first, made.study)} (2 seeds)"}
        for row in own.itertuples():
            at = (row.split, row.row, row.x)
            assert row.value == pytest.approx((apart[(first, *at)] + apart[(second, *at)]) / 2)


def test_policies_are_drawn_at_as_many_trajectories_as_all_have(made: Made) -> None:
    """More of them alone would raise a policy's curve."""
    second = made.study.evaluate[1]
    fewer = made.frame[(made.frame["policy"] != second) | (made.frame["trajectory"] < 2)]
    data = serial_scaling_data(fewer, made.study)
    assert set(data["trajectories"].dropna()) == {2}
    own = data.query("policy == 'p0' and split == 'level1' and row == 'correct' and x == 4")["value"].item()
    trajectories = trajectory_best(made.frame.query("policy == 'p0' and split == 'level1'"))
    assert own == pytest.approx(best_of_k_by_task(trajectories, "correct", 2).mean())
    with theme():
        said = serial_scaling(fewer, made.study)[0].legends[0].get_title().get_text()
    assert said.startswith("Best of 2 trajectories")
    shares = fast_p_of(fewer, made.study).query("policy == 'p0' and split == 'level1' and row == 'best' and x == 0")
    assert shares["value"].item() == pytest.approx(own)


def test_fast_p_goes_as_far_as_the_fastest_kernel_and_shows_torch_compile(made: Made) -> None:
    frame = made.frame.assign(speedup=made.frame["speedup"] * 30)
    compiled = pd.Series({"l1/gelu": 2.0, "l1/softmax": 0.5})
    data = fast_p_data(frame, compiled, made.study)
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
            ask(figure, "Is this a question that needs more than one line? " * 3)
            figure.draw_without_rendering()
            title = next(t for t in figure.texts if t.get_text() == figure.get_suptitle())
            for part in (title, *figure.legends):
                box = part.get_window_extent()
                assert box.x0 >= 0 and box.x1 <= figure.bbox.width
                assert box.y0 >= 0 and box.y1 <= figure.bbox.height


def test_a_run_of_one_step_can_be_seen(tmp_path: Path) -> None:
    (tmp_path / "p0").mkdir()
    record = {"step": 1, "score": 1.0, "score_turn_1": 1.0, "correct_turn_1": 0.5}
    (tmp_path / "p0" / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    with theme():
        for draw in (training, training_turns):
            figure, _ = draw([tmp_path / "p0"], make_study(2))
            lines = figure.axes[0].get_lines()
            assert any(len(line.get_xdata()) == 1 and line.get_marker() not in ("", "None") for line in lines)
            figure.draw_without_rendering()
            ticks = [t for ax in figure.axes[:1] for t in ax.get_xticks()]
            assert all(t == int(t) for t in ticks)
