"use strict";

// --- tables: sort, and choose among our rows by the values of a column -----------------------------------------

const textOf = (cell) => cell.firstChild?.textContent.trim() ?? "";

// The number that a cell's text begins with; null for a word.
function numberOf(cell) {
  const text = textOf(cell);
  const match = text.replaceAll(",", "").replace("−", "-").match(/^[+-]?\d+(\.\d+)?/);
  return match ? Number(match[0]) : text === "–" ? -Infinity : null;
}

const bodyRows = (table) => [...table.tBodies[0].rows];
const isTheirs = (row) => row.cells[0].classList.contains("theirs");

function sortBy(table, column, header) {
  const wasAscending = header.getAttribute("aria-sort") === "ascending";
  const isNumeric = bodyRows(table).some((row) => numberOf(row.cells[column]) !== null);
  const ascending = header.hasAttribute("aria-sort") ? !wasAscending : !isNumeric;
  for (const th of table.querySelectorAll("th[aria-sort]")) th.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const order = (a, b) => {
    if (isTheirs(a) !== isTheirs(b)) return isTheirs(a) ? 1 : -1;
    const x = numberOf(a.cells[column]), y = numberOf(b.cells[column]);
    const found = x !== null && y !== null ? x - y || 0
      : a.cells[column].textContent.localeCompare(b.cells[column].textContent);
    return ascending ? found : -found;
  };
  table.tBodies[0].append(...bodyRows(table).sort(order));
}

function choose(table, box) {
  const selects = [...box.querySelectorAll("select")];
  for (const row of bodyRows(table)) {
    // a row stands but where another choice than the chosen one is its own
    row.hidden = selects.some((select) => {
      const text = textOf(row.cells[Number(select.dataset.column)]);
      return text !== select.value && [...select.options].some((option) => option.value === text);
    });
  }
}

function addFilters(table) {
  const box = document.querySelector(`.filters[data-for="${table.id.slice(2)}"]`);
  const heads = table.tHead.rows[table.tHead.rows.length - 1].cells;
  for (const column of table.dataset.filters.split(" ").filter(Boolean).map(Number)) {
    const ours = bodyRows(table).filter((row) => !isTheirs(row));
    const values = [...new Set(ours.map((row) => textOf(row.cells[column])))];
    const select = document.createElement("select");
    select.dataset.column = column;
    select.append(...values.filter((value) => value !== "–" && value !== "").map((value) => new Option(value, value)));
    const label = document.createElement("label");
    label.append(heads[column].textContent.trim() + " ", select);
    box.append(label);
    select.addEventListener("change", () => choose(table, box));
  }
  if (box) choose(table, box);
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[table.tHead.rows.length - 1].cells].forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    if (bodyRows(table).every((row) => row.cells[column].classList.contains("num"))) header.classList.add("num");
    button.addEventListener("click", () => sortBy(table, column, header));
  });
  addFilters(table);
  if ("viewer" in table.dataset) {
    for (const { cells: [cell] } of bodyRows(table)) {
      const link = document.createElement("a");
      link.href = "#view/" + encodeURIComponent(cell.firstChild.textContent);
      link.append(cell.firstChild);
      cell.prepend(link);
    }
  }
}

// --- what is folded opens where an address points into it, and on paper ------------------------------------------

function openTarget() {
  const id = location.hash.startsWith("#view/") ? "viewer-box" : location.hash.slice(1); // no id needs decoding
  for (let at = document.getElementById(id); at !== null; at = at.parentElement) {
    if (at.tagName === "DETAILS") at.open = true;
  }
}

window.addEventListener("hashchange", openTarget);
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((fold) => { fold.open = true; }));
openTarget();
