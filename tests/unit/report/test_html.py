import base64
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import (
    HOSTILE,
    Page,
    hostile_study,
    make_study,
    make_task,
    make_turn,
    scored,
    trained_study,
    write_report,
    write_scores,
    write_study,
)

from kevin.core.files import write_tasks, write_turns
from kevin.core.types import Outcome, Turn
from kevin.report import paper, training_gain, training_time
from kevin.report.cells import Body, Cell, Row, Table, number_cell, percent, text_cell, times
from kevin.report.display import display_table
from kevin.report.figures import make_figure
from kevin.report.html import _headline, _verdicts, make_report
from kevin.report.tables import policies_table, read_baselines
from kevin.report.viewer import embed_json, kernel_diff, split_completion, viewer_data


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("study")
    study = make_study(2)
    return write_report(root, study, write_study(root, study)).read_text()


def test_the_page_needs_nothing_from_outside(page: str) -> None:
    parsed = Page(page)
    for tag, attributes in parsed.tags:
        assert tag not in ("link", "iframe", "object", "embed")
        for name in ("src", "href"):
            value = attributes.get(name) or "#"
            assert value.startswith(("data:", "#")), f"{tag} {name}={value[:60]}"
    assert len(page) < 15e6


def test_only_the_pages_own_script_may_run(page: str) -> None:
    parsed = Page(page)
    assert len(parsed.scripts) == 2
    policy = next(a["content"] for t, a in parsed.tags if t == "meta" and a.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(parsed.scripts[1].encode()).digest()).decode()
    assert policy is not None and f"script-src 'sha256-{digest}'" in policy


def test_tables_are_complete_downloads(page: str) -> None:
    parsed = Page(page)
    links = {a["download"]: a["href"] for t, a in parsed.tags if t == "a" and "download" in a}
    assert {"level1.csv", "level2.csv", "serial_parallel.csv", "tasks.csv", "outcomes.csv", "outcomes.pdf"} <= set(
        links
    )
    level = base64.b64decode((links["level1.csv"] or "").split(",", 1)[1]).decode()
    assert level.startswith("source,policy,label,baseline,subset,num_tasks")
    assert "o4-mini" in page and "Not comparable" in page


def test_the_viewer_holds_the_best_trajectories(page: str) -> None:
    viewer = Page(page).viewer()
    assert len(viewer["tasks"]) == 13
    assert len(viewer["trajectories"]) == 13 * 2 * 2
    turns = viewer["trajectories"][0]["turns"]
    assert [t["turn"] for t in turns] == [1, 2, 3, 4]
    assert [len(t["prompt"]) for t in turns] == [1, 3, 5, 7]
    assert "def get_inputs" in viewer["texts"][turns[0]["prompt"][0][1]]


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    study, files = hostile_study(tmp_path)
    text = write_report(tmp_path, study, files).read_text()
    parsed = Page(text)
    assert len(parsed.scripts) == 2
    assert not any("onerror" in a for _, a in parsed.tags)
    assert {t for t, _ in parsed.tags}.isdisjoint({"b", "textarea"})
    assert len([t for t, _ in parsed.tags if t == "img"]) == 1
    viewer = parsed.viewer()
    turns = viewer["trajectories"][0]["turns"]
    assert viewer["texts"][turns[0]["thought"]] == HOSTILE
    assert viewer["texts"][turns[1]["feedback"]] == HOSTILE
    assert turns[0]["summary"].startswith("</script>")


@pytest.mark.slow
def test_the_same_inputs_give_the_same_page(tmp_path: Path) -> None:
    study, files = hostile_study(tmp_path)
    first = write_report(tmp_path, study, files).read_text()
    again = re.sub(r"<td>20[^<]*</td>", "", write_report(tmp_path, study, files).read_text())
    assert re.sub(r"<td>20[^<]*</td>", "", first) == again


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "\u2028&", '"quoted" \\', "plain"])
def test_embedded_json_reads_back_and_cannot_leave_its_element(text: str) -> None:
    embedded = embed_json({"a": text})
    assert json.loads(embedded) == {"a": text}
    assert not set("<>&\u2028\u2029") & set(embedded)


def test_the_viewer_keeps_to_its_size_with_every_tasks_best_first() -> None:
    study = make_study(1)
    tasks = [make_task(f"relu{i}", 1) for i in range(4)]
    best = {
        "p0": {
            t.id: [[make_turn(t.id, n, 1, Outcome.INCORRECT, text=f"{t.id}{n}" + "x" * 3000)] for n in range(2)]
            for t in tasks
        }
    }
    full = viewer_data(best, tasks, study)
    small = viewer_data(best, tasks, study, max_bytes=len(json.dumps(full)) * 3 // 4)
    assert full["num_left_out"] == 0 and len(full["trajectories"]) == 8
    assert small["num_left_out"] == 8 - len(small["trajectories"]) > 0
    assert {e["task"] for e in small["trajectories"]} == {0, 1, 2, 3}
    used = {t[key] for e in small["trajectories"] for t in e["turns"] for key in ("thought", "answer", "feedback")}
    assert max(i for i in used if i is not None) < len(small["texts"])


def test_long_answers_keep_beginning_and_end() -> None:
    task = make_task("relu", 1)
    turn = make_turn(task.id, 0, 1, Outcome.PARSE_ERROR, text="begin" + "x" * 50_000 + "end")
    data = viewer_data({"p0": {task.id: [[turn]]}}, [task], make_study(1))
    text = data["texts"][data["trajectories"][0]["turns"][0]["answer"]]
    assert text.startswith("begin") and text.endswith("end") and len(text) < 13_000


def turn_of(text: str) -> Turn:
    return make_turn("t", 0, 1, Outcome.INCORRECT, text=text)


def test_completions_are_split_into_thought_and_answer() -> None:
    code = "```cpp\nint x;\n```"
    assert split_completion(turn_of(f"<think>\nOkay.\n</think>\n{code}"))[0] == "Okay."
    assert split_completion(turn_of(f"First this.\n{code}"))[0] == "First this."
    assert split_completion(turn_of("<think>never closed")) == ("", "<think>never closed")
    assert split_completion(turn_of("only words")) == ("", "only words")


def test_diff_to_an_earlier_kernel() -> None:
    one, two = turn_of("```cpp\nint a;\nint b;\n```"), turn_of("```cpp\nint a;\nint c;\n```")
    assert (kernel_diff(one, two) or "").splitlines()[-2:] == ["-int b;", "+int c;"]
    assert kernel_diff(one, one) == ""
    assert kernel_diff(one, turn_of("none")) is None


def test_numbers_for_people() -> None:
    assert [percent(0.456), times(1.234), times(123.4)] == ["46 %", "1.23×", "123×"]
    cell = number_cell(0.5, percent, 0.25, 0.75)
    assert (cell.text, cell.note, cell.sort) == ("50 %", "25–75", 0.5)
    missing = number_cell(float("nan"), percent)
    assert (missing.text, missing.sort) == ("–", float("-inf"))


def test_an_unknown_table_is_shown_whole() -> None:
    frame = pd.DataFrame({"policy": ["multi"], "mean_time_s": [0.123456], "num_tasks": [16]})
    table = display_table("held_out", frame, make_study(1))
    assert (table.title, table.columns) == ("Held out", ["Policy", "Mean time (s)", "Tasks"])
    assert [c.text for c in table.bodies[0].rows[0].cells] == ["multi", "0.1235", "16"]
    assert table.numeric == [False, True, True]


def test_tables_of_training_have_heads_for_people() -> None:
    study = make_study(2)
    gain = dict(zip(training_gain.COLUMNS, ["p1", "p0", 0.5, -0.02, 1.5, 16, 1.25, 0.75, 0.37, 0.28, 1], strict=True))
    time = dict(zip(training_time.COLUMNS, ["p1", 12, 20.0, 4.0, 13.0, 2.5, 0.5, 0.025, 300.0], strict=True))
    for name, row, title in (("rl_gain", gain, "What training gained"), ("step_time", time, "Where a training step")):
        table = display_table(name, pd.DataFrame([row]), study)
        assert table.title.startswith(title)
        heads = [*table.columns, *(label for label, _ in table.groups)]
        assert not any("_" in head for head in heads)
        cells = table.bodies[0].rows[0].cells
        assert len(cells) == len(table.columns) == sum(span for _, span in table.groups)
        assert cells[0].text == "multi-turn RL"
        if name == "rl_gain":
            assert [c.text for c in cells[1:]] == ["base model", "16", "+0.50", "0.75", "1.25", "28 %", "37 %"]
            assert cells[3].note == "−0.02 to +1.50"


def test_no_raw_column_name_stands_on_the_page(page: str) -> None:
    heads = re.findall(r"<th scope=\"col\"[^>]*>(?:<button[^>]*>)?([^<]*)", page)
    assert "Tasks" in heads and "PyTorch eager (ms)" in heads
    assert not [head for head in heads if re.search(r"[a-z]_[a-z]", head)]


def test_the_papers_rows_say_what_they_cover_and_over_what(page: str) -> None:
    rows = re.findall(r'<tr ([^>]*)>\s*<th scope=row data-sort="o4-mini">(.*?)</th>', page, re.DOTALL)
    covered = [re.search(r"over eager · (.*?)<", text)[1] for _, text in rows]  # type: ignore[index]
    assert all('data-baseline="eager"' in tags for tags, _ in rows)
    assert covered == [paper.TASKS, paper.BLOG_TASKS, paper.BLOG_LEVEL.format(level=2)]
    headings = re.findall(r'<tr class="heading"[^>]*>.*?<span>(.*?)</span>', page)
    assert len([h for h in headings if "100 unseen tasks, levels not told apart" in h]) == 3, "primary, tables 1 and 2"
    assert len([h for h in headings if "90 % of them trained on" in h]) == 3, "table 1 and two levels"


def test_the_page_opens_with_three_sentences_and_the_primary_table(page: str) -> None:
    found = re.findall(r"<li>(.*?)</li>", page[page.index('<ul class="findings">') : page.index("</ul>")])
    assert len(found) == 3 and found[0].startswith(
        "Primary endpoint (named after these kernels had been seen): not measured"
    )
    places = [page.index(part) for part in ("<h1>", 'class="findings"', 'class="lead"', 'id="table-primary"')]
    assert places == sorted(places) and places[-1] < page.index("What was reproduced")


def test_the_first_screen_says_what_was_reproduced(page: str) -> None:
    assert page.index('id="table-claims"') < page.index('class="tiles"') < page.index('id="tables"')
    assert page.count('id="table-claims"') == 1
    own = page[page.index('id="table-claims"') : page.index('class="tiles"')]
    assert "9.61×" in own and "not measured" in own and "no policy made by" in own


def test_before_the_table_every_verdict_stands_with_its_claims_and_numbers(page: str) -> None:
    start, end = page.index("<h2>What was reproduced <small>exploratory</small></h2>"), page.index('id="table-claims"')
    dl = page[start:end]
    kinds = dl.split("<dl")[1:]
    assert ['data-kind="effect"' in kinds[0], 'data-kind="level"' in kinds[1], len(kinds)] == [True, True, 2]
    assert "LayerNorm" in kinds[1] and "best kernels faster" in kinds[0]
    found = re.findall(r"<dt[^>]*>(\d+) ([a-z ]+?) <small>", dl)
    counts = {v: sum(int(number) for number, verdict in found if verdict == v) for _, v in found}
    table = page[end : page.index('class="tiles"')]
    rows = re.findall(r"<tr><th scope=row.*?</tr>|<tr>\s*<th scope=row.*?</tr>", table, re.DOTALL)
    assert list(counts) == ["shown", "refuted", "not shown", "not measured"]
    others = [row for row in rows if "primary endpoint: " not in row]
    assert sum(counts.values()) == len(others) == len(rows) - 1 == dl.count("<dd>") and counts["not measured"] > 0
    for verdict, number in counts.items():
        assert number == len([r for r in others if f'data-sort="{verdict}"' in r]), verdict
    assert (
        "LayerNorm is made 9.61 times as fast: <span>" in dl and "Multi-turn RL makes the best kernels faster: " in dl
    )


def test_a_claim_with_a_number_stands_with_the_papers_and_one_without_with_the_reason() -> None:
    def row(verdict: str, why: str, ours: Cell) -> Row:
        return Row([text_cell("A claim", "m"), Cell("46 %", 0.46, "16 × 8"), ours, text_cell(verdict, why)], {})

    rows = [row("shown", "interval above", Cell("62 %", 0.62, "50–70")), row("not measured", "none", Cell("–", -1.0))]
    frame = pd.DataFrame({"kind": ["effect", "effect"]})
    table = Table("claims", "", "", ["c"] * 4, [Body(None, rows)])
    found = {v.verdict: v.claims for v in _verdicts(frame, table) if v.kind == "effect"}
    assert found == {
        "shown": [("A claim", "62 % (50–70), paper 46 %")],
        "refuted": [],
        "not shown": [],
        "not measured": [("A claim", "none")],
    }


def test_of_several_seeds_the_headline_is_their_mean(tmp_path: Path) -> None:
    study = trained_study(2, single=False)
    parts = {"base": [[1.0]], "multi": [[2.0]], "multi_1": [[4.0]]}
    scores = pd.concat([scored(p, dict.fromkeys("abcdef", own)) for p, own in parts.items()])
    table = policies_table(scores, read_baselines(None), study, [])
    ((_, label, tiles),) = _headline({"level1": table}, study)
    assert label == "multi (2 seeds)" and tiles[0].value == "3.00×"
    assert tiles[0].beside == ["base model 1.00×"]


def test_importing_the_report_is_light() -> None:
    code = (
        "import sys, kevin.report, kevin.report.html, kevin.report.tables, kevin.report.figures;"
        "print([m for m in ('torch', 'matplotlib', 'seaborn', 'kevin.judge') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"


def test_the_case_study_shows_what_changed_folded(tmp_path: Path) -> None:
    study = make_study(1)
    task = make_task("layer_norm", 1)
    first = make_turn(task.id, 0, 1, Outcome.INCORRECT)
    hostile = "<think>x</think>\n```cpp\n<script>alert(1)</script>\n```\nSummary: s"
    second = make_turn(task.id, 0, 2, Outcome.CORRECT, 1.5, text=hostile)
    third = make_turn(task.id, 0, 3, Outcome.CORRECT, 1.5, text=hostile)
    turns = tmp_path / "p0-level1" / "turns.parquet"
    write_turns(turns, [first, second, third], {})
    write_tasks(tmp_path / "tasks.parquet", [(task, "level1")], {})
    scores = write_scores(tmp_path, study, {"tasks": [tmp_path / "tasks.parquet"], "turns": [turns]})
    figure = make_figure("layernorm_case_study", tmp_path, study=study, turns=[turns])[0]
    page = make_report(
        tmp_path / "report.html", study=study, tables=[], figures=[figure], scores=scores, turns=[turns],
        tasks=tmp_path / "tasks.parquet",
    ).read_text()  # fmt: skip
    assert "<summary>base model: turn 1 to 2 (correct, 1.50×)</summary>" in page
    assert '<span class="line-add">+&lt;script&gt;alert(1)&lt;/script&gt;</span>' in page
    assert "turn 2 to 3 (correct, 1.50×)</summary>" in page and "the same kernel" in page
