"use strict";

document.documentElement.classList.add("scripted");

// --- tables: sort within each body, filter by tags -------------------------------------------------------------

function sortKey(row, column) {
  const text = row.cells[column].dataset.sort;
  return text === "-inf" ? -Infinity : text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text;
}

function sortBy(table, column, header) {
  const down = header.getAttribute("aria-sort") === "descending";
  const wasSorted = header.hasAttribute("aria-sort");
  for (const th of table.querySelectorAll("th[aria-sort]")) th.removeAttribute("aria-sort");
  const first = table.tBodies[0].querySelector("tr:not(.heading)");
  const numeric = first !== null && first.cells[column].classList.contains("num");
  const ascending = wasSorted ? down : !numeric;
  header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter((row) => !row.classList.contains("heading"));
    rows.sort((a, b) => {
      const x = sortKey(a, column), y = sortKey(b, column);
      const order = typeof x === "number" && typeof y === "number" ? x - y || 0 : String(x).localeCompare(String(y));
      return ascending ? order : -order;
    });
    body.append(...rows);
  }
}

for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => sortBy(table, column, header));
  });
}

for (const article of document.querySelectorAll("article.table")) {
  const update = () => {
    const chosen = [...article.querySelectorAll("fieldset")].map((f) => [f.dataset.filter, f.querySelector(":checked").value]);
    for (const row of article.querySelectorAll("tbody tr")) {
      row.hidden = chosen.some(([key, value]) => key in row.dataset && row.dataset[key] !== value);
    }
  };
  article.addEventListener("change", update);
  update();
}
