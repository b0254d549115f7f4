"""The page as a browser shows it: filters, addresses, search, print. Skipped where no Chromium is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from browser import evaluate, needs_browser
from report_fixtures import Page, hostile_study, write_report

ROWS = """
  const table = document.getElementById("table-table1");
  table.open = true;
  const select = table.querySelector("select");
  const shown = {};
  for (const baseline of ["eager", "torch.compile"]) {
    select.value = baseline;
    select.dispatchEvent(new Event("change", { bubbles: true }));
    shown[baseline] = [...table.querySelectorAll("tbody tr")].filter((row) => !row.hidden).map((row) => row.innerText);
  }
  return shown;
"""


@needs_browser
def test_the_papers_rows_are_never_read_as_over_torch_compile(page: str, tmp_path: Path) -> None:
    over_eager, over_compile = evaluate(page, ROWS, tmp_path).values()
    assert any(row.startswith("o4-mini") for row in over_eager)
    assert any(row.startswith("base model") for row in over_compile)
    assert not any(row.startswith("o4-mini") for row in over_compile)


A4_LANDSCAPE = 1047
"""CSS pixels between margins of 10 mm."""


@needs_browser
def test_print_shows_every_column(page: str, tmp_path: Path) -> None:
    script = """
      document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
      const widest = (box) => Math.max(...[...box.querySelectorAll("table")].map((table) => table.offsetWidth));
      const needed = (box) => Math.max(box.scrollWidth, widest(box));
      return [...document.querySelectorAll("main, .scroll")].map((box) => [box.clientWidth, needed(box)]);
    """
    boxes = evaluate(page, script, tmp_path, width=A4_LANDSCAPE, changes={"@media print": "@media all"})
    assert len(boxes) == page.count('class="scroll"') + 1
    for visible, needed in boxes:
        assert needed <= visible <= A4_LANDSCAPE


@needs_browser
def test_what_the_papers_rows_cover_is_read_without_scrolling_on_a_phone(page: str, tmp_path: Path) -> None:
    script = """
      document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
      const all = [...document.querySelectorAll(".caption")];
      const said = all.filter((text) => text.innerText.includes("Not comparable"));
      return [innerWidth, ...said.map((text) => text.getBoundingClientRect().right)];
    """
    visible, *ends = evaluate(page, script, tmp_path, width=500)
    assert len(ends) == 5 and max(ends) <= visible


@needs_browser
def test_addresses_lead_to_their_turn_or_nowhere(page: str, tmp_path: Path) -> None:
    number = next(t["number"] for t in Page(page).viewer()["trajectories"] if t["task"] == 2 and t["policy"] == 1)
    script = """
      const shown = () => [
        ...[...document.querySelectorAll("#viewer-app .pick select")].map((s) => s.selectedOptions[0].text),
        document.querySelector('[role="tab"][aria-selected="true"] small').innerText,
      ];
      const all = [shown()];
      const lost = ["#view/%", "#view/%E0%A4%A", "#%", "#view/nothing/here"];
      for (const address of [...lost, "#view/l1/gelu", "#view/l1%2Fgelu"]) {
        location.hash = address;
        dispatchEvent(new Event("hashchange"));
        all.push(shown());
      }
      return all;
    """
    first, *lost, task, quoted = evaluate(page, script, tmp_path, address=f"#view/l1/softmax/p1/{number}/3")
    assert first[:2] == ["l1/softmax", "multi-turn RL"] and first[2].startswith(f"no. {number},")
    assert first[3] == "Turn 3"
    assert lost == [first] * 4
    assert task[0] == "l1/gelu" and task == quoted


@needs_browser
def test_a_page_opened_at_a_malformed_address_works(page: str, tmp_path: Path) -> None:
    script = "return document.querySelector('#pick-task').selectedOptions[0].text;"
    assert evaluate(page, script, tmp_path, address="#view/%") == "l1/layer_norm"


SEARCH = """
  document.getElementById("viewer-box").open = true;
  const input = document.getElementById("viewer-search"), outcome = document.getElementById("viewer-outcome");
  const enter = (box, value) => { box.value = value; box.dispatchEvent(new Event("input", { bubbles: true })); };
  const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const hits = () => [...document.querySelectorAll(".hits a")].map((a) => a.innerText);
  const count = () => document.querySelector(".search [role=status]").innerText;
"""


def turns_in(viewer: dict) -> list[tuple[str, dict]]:
    return [(viewer["tasks"][t["task"]]["id"], turn) for t in viewer["trajectories"] for turn in t["turns"]]


@needs_browser
def test_turns_are_found_by_task_outcome_and_text(page: str, tmp_path: Path) -> None:
    viewer = Page(page).viewer()
    script = (
        SEARCH
        + """
      const found = {};
      for (const query of ["L2/matmul_soft", "vectorised", '"outer loop" softmax', "nowhere to be found"]) {
        enter(input, query);
        found[query] = count();
      }
      enter(input, "vectorised");
      found.marked = document.querySelector(".hits mark").innerText;
      enter(input, "");
      found.nothing = [count(), document.querySelector(".hits").hidden];
      enter(outcome, "compile_error");
      found.outcome = [count(), hits()[0]];
      return found;
    """
    )
    found = evaluate(page, script, tmp_path)

    def number(fits: Callable[[str, dict], bool]) -> int:
        return sum(fits(task, turn) for task, turn in turns_in(viewer))

    assert found["L2/matmul_soft"] == f"{number(lambda task, _: task == 'l2/matmul_softmax')} turns"
    texts = viewer["texts"]
    kernels = number(lambda _, t: t["kernel"] is not None and "vectorised" in texts[t["kernel"]])
    assert found["vectorised"].startswith(f"{kernels} turns") and kernels > 0
    assert found["nowhere to be found"] == "0 turns" and found["marked"] == "vectorised"
    assert int(found['"outer loop" softmax'].split()[0]) > 0
    assert found["nothing"] == ["", True]
    errors = number(lambda _, t: t["outcome"] == "compile_error")
    assert found["outcome"][0].startswith(f"{errors} turns") and "compile error" in found["outcome"][1]


@needs_browser
def test_the_search_can_be_used_with_keys_alone(page: str, tmp_path: Path) -> None:
    script = (
        SEARCH
        + """
      input.focus();
      enter(input, "l2/conv1d_mish_mean");
      const places = [document.activeElement.id];
      for (const key of ["ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp"]) {
        press(key);
        places.push([...document.querySelectorAll(".hits a")].indexOf(document.activeElement));
      }
      press("Enter");
      places.push(document.querySelector("#pick-task").selectedOptions[0].text, location.hash,
        document.activeElement.getAttribute("role"));
      input.focus();
      press("Escape");
      return [...places, input.value, count()];
    """
    )
    places = evaluate(page, script, tmp_path)
    assert places[:5] == ["viewer-search", 0, 1, 0, -1]
    assert places[5] == "l2/conv1d_mish_mean" and places[6].startswith("#view/l2/conv1d_mish_mean/p0/")
    assert places[7:] == ["tab", "", ""]


@needs_browser
def test_hostile_text_stays_text_in_the_viewer_and_its_search(tmp_path: Path) -> None:
    study, files = hostile_study(tmp_path)
    text = write_report(tmp_path, study, files).read_text()
    script = SEARCH + 'enter(input, "onerror"); return [hits().length, document.title, document.images.length];'
    assert evaluate(text, script, tmp_path) == [2, "Kevin study · laptop", 1]
