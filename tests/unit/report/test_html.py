import base64
import hashlib
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
    write_report,
    write_scores,
)

from kevin.core.files import write_tasks, write_turns
from kevin.core.types import Outcome
from kevin.report import paper, show
from kevin.report.catalogue import make_figure
from kevin.report.forms import percent, said, times
from kevin.report.html import make_report, verdicts
from kevin.report.training import GAIN_COLUMNS, TIME_COLUMNS


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


def test_numbers_for_people() -> None:
    assert [percent(0.456), times(1.234), times(123.4)] == ["46 %", "1.23×", "123×"]
    assert said(0.5, percent, 0.25, 0.75) == "50 %\n25–75"
    assert said(float("nan"), percent) == said(None, percent) == "–"


def test_tables_of_training_have_heads_for_people() -> None:
    study = make_study(2)
    gain = dict(zip(GAIN_COLUMNS, ["p1", "p0", 0.5, -0.02, 1.5, 16, 1.25, 0.75, 0.37, 0.28, 1], strict=True))
    time = dict(zip(TIME_COLUMNS, ["p1", 12, 20.0, 4.0, 13.0, 2.5, 0.5, 0.025, 300.0], strict=True))
    tables = [show.rl_gain(pd.DataFrame([gain]), study), show.step_time(pd.DataFrame([time]), study)]
    for table in tables:
        assert not any("_" in text for head in table.heads for text in head)
        assert table.cells.iloc[0, 0] == "multi-turn RL"
    assert tables[0].cells.iloc[0].tolist()[1:] == [
        *("base model", "16", "+0.50\n−0.02 to +1.50", "0.75", "1.25", "28 %", "37 %")
    ]


def test_no_raw_column_name_stands_on_the_page(page: str) -> None:
    heads = re.findall(r"<th [^>]*>([^<]*)</th>", page)
    assert "Tasks" in heads and "PyTorch eager (ms)" in heads
    assert not [head for head in heads if re.search(r"[a-z]_[a-z]", head) and head != "fast_1@k"]


def test_the_papers_rows_say_what_they_cover(page: str) -> None:
    """Under tables with others' rows, which are marked."""
    notes = re.findall(r"[¹²³] Not comparable, other tasks, models and hardware: ([^<]*?)\.(?= |<)", page)
    assert sum(paper.TASKS in note for note in notes) == 3, "primary, tables 1 and 2"
    assert sum("90 % of them trained on" in note for note in notes) == 3, "table 1 and two levels"
    rows = re.findall(r'<td class="[^"]*theirs" >o4-mini ([¹²³])</td>', page)
    assert len(rows) == 3


def test_the_page_opens_with_three_sentences_and_the_primary_table_and_the_rest_is_folded(page: str) -> None:
    found = re.findall(r"<li>(.*?)</li>", page[page.index('<ul class="findings">') : page.index("</ul>")])
    assert len(found) == 3 and found[0].startswith(
        "Primary endpoint (named after such kernels had been seen): not measured"
    )
    places = [page.index(part) for part in ("<h1>", 'class="findings"', 'class="lead"', 'id="table-primary"')]
    assert places == sorted(places) and places[-1] < page.index("What was reproduced")
    folded = re.findall(r'<details id="(table-\w+|figure-\w+)">', page)
    assert {"table-claims", "table-level1", "table-tasks", "figure-outcomes"} <= set(folded)
    assert "table-primary" not in folded and "<details open" not in page
    assert page.count('<div class="scroll"') == page.count("<table"), "each table scrolls within a box of its own"


def test_before_the_table_every_verdict_stands_with_its_claims_and_numbers(page: str) -> None:
    start, end = page.index("<h2>What was reproduced <small>exploratory</small></h2>"), page.index('id="table-claims"')
    dl = page[start:end]
    kinds = dl.split("<dl")[1:]
    assert ['data-kind="effect"' in kinds[0], 'data-kind="level"' in kinds[1], len(kinds)] == [True, True, 2]
    assert "LayerNorm" in kinds[1] and "best kernels faster" in kinds[0]
    found = re.findall(r"<dt[^>]*>(\d+) ([a-z ]+?) <small>", dl)
    counts = {v: sum(int(number) for number, verdict in found if verdict == v) for _, v in found}
    assert list(counts) == ["shown", "refuted", "not shown", "not measured"]
    table = page[end : page.index('id="tables"')]
    rows = [row for row in table.split("<tr>") if "<td" in row and "primary endpoint: " not in row]
    assert sum(counts.values()) == len(rows) == dl.count("<dd>") and counts["not measured"] > 0
    for verdict, number in counts.items():
        assert number == len([row for row in rows if f">{verdict}<" in row]), verdict
    assert (
        "LayerNorm is made 9.61 times as fast: <span>" in dl and "Multi-turn RL makes the best kernels faster: " in dl
    )


def test_a_claim_with_a_number_stands_with_the_papers_and_one_without_with_the_reason() -> None:
    head = {"kind": "effect", "claim": "A claim", "measure": "m", "unit": "share", "scale": "laptop", "hardware": "x"}
    head |= {"paper": 0.46, "paper_setting": "16 × 8", "detectable": 0.1, "policies": "p", "setting": "s"}
    head |= {"num_seeds": 1, "num_seeds_against": None, "num_tasks": 9}
    rows = [
        head | {"ours": 0.62, "ours_low": 0.5, "ours_high": 0.7, "verdict": "shown", "why": "interval above"},
        head | {"ours": None, "ours_low": None, "ours_high": None, "verdict": "not measured", "why": "none"},
    ]
    found = {v["verdict"]: v["claims"] for v in verdicts(pd.DataFrame(rows), make_study(1)) if v["kind"] == "effect"}
    assert found == {
        "shown": [("A claim", "62 % (50–70), paper 46 %")],
        "refuted": [],
        "not shown": [],
        "not measured": [("A claim", "none")],
    }


def test_importing_the_report_is_light() -> None:
    code = (
        "import sys, kevin.report, kevin.report.html, kevin.report.catalogue, kevin.report.figures;"
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
