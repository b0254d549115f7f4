// --- search among the viewer's turns -----------------------------------------------------------------------------

const MAX_HITS = 50;
const SNIPPET_CHARS = 90;
let searched = null; // made when somebody searches

function searchable() {
  searched ??= data.trajectories.flatMap((trajectory) => trajectory.turns.map((turn) => {
    const task = data.tasks[trajectory.task], outcome = outcomeOf(turn);
    const texts = [turn.summary, data.texts[turn.kernel ?? turn.answer], data.texts[turn.feedback]].filter(Boolean);
    const head = [task.id, ...task.ops, data.policies[trajectory.policy].label, outcome.label, turn.reason];
    return { trajectory, turn, texts, text: [...head, ...texts].join("\n").toLowerCase() };
  }));
  return searched;
}

// Every word, or "several words" in quotes, somewhere in what belongs to a turn.
function hitsOf(query, outcome) {
  const words = [...query.toLowerCase().matchAll(/"([^"]+)"|[^\s"]+/g)].map((match) => match[1] ?? match[0]);
  if (words.length === 0 && outcome === "") return { words, hits: null };
  const fits = (entry) => (outcome === "" || String(entry.turn.outcome) === outcome) && words.every((w) => entry.text.includes(w));
  return { words, hits: searchable().filter(fits) };
}

function snippet(entry, words) {
  for (const text of entry.texts) {
    const lower = text.toLowerCase();
    const word = words.find((w) => lower.includes(w));
    if (word === undefined) continue;
    const at = lower.indexOf(word), from = Math.max(0, at - SNIPPET_CHARS / 3);
    return make("small", {}, from > 0 ? "… " : "", text.slice(from, at), make("mark", {}, text.slice(at, at + word.length)),
      text.slice(at + word.length, from + SNIPPET_CHARS));
  }
  return entry.turn.summary ? make("small", {}, entry.turn.summary.slice(0, SNIPPET_CHARS)) : null;
}

function hitLink(entry, words) {
  const { trajectory, turn } = entry, outcome = outcomeOf(turn);
  const place = { task: trajectory.task, policy: trajectory.policy, number: trajectory.number, turn: turn.turn };
  const found = [data.policies[place.policy].label, "no. " + place.number, "turn " + place.turn,
    outcome.icon + " " + outcome.label + (turn.speedup === null ? "" : " " + times(turn.speedup))].join(" · ");
  const link = make("a", { href: address(place) }, make("b", {}, data.tasks[place.task].id), " " + found, snippet(entry, words));
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    Object.assign(state, place);
    show(true);
    app.scrollIntoView({ block: "nearest" });
    focusTab();
  });
  return link;
}

function searchBox() {
  const input = make("input", { type: "search", id: "viewer-search", autocomplete: "off", spellcheck: "false",
    placeholder: "task, policy, summary, kernel, feedback", "aria-controls": "viewer-hits" });
  const known = distinct(data.trajectories.flatMap((t) => t.turns.map((turn) => String(turn.outcome))));
  const outcomes = Object.keys(data.outcomes).filter((o) => known.includes(o)).map((o) => [o, data.outcomes[o].label]);
  if (known.includes("null")) outcomes.push(["null", "no verdict"]);
  const outcome = make("select", { id: "viewer-outcome" },
    ...[["", "any"], ...outcomes].map(([value, text]) => make("option", { value }, text)));
  const count = make("p", { class: "meta", role: "status" });
  const list = make("ol", { class: "hits", id: "viewer-hits", hidden: true });
  const links = () => [...list.querySelectorAll("a")];
  const update = () => {
    const { words, hits } = hitsOf(input.value, outcome.value);
    list.hidden = hits === null || hits.length === 0;
    list.replaceChildren(...(hits ?? []).slice(0, MAX_HITS).map((hit) => make("li", {}, hitLink(hit, words))));
    count.textContent = hits === null ? "" : (hits.length === 1 ? "1 turn" : hits.length.toLocaleString("en") + " turns")
      + (hits.length > MAX_HITS ? ", the first " + MAX_HITS + " are shown" : "");
  };
  const keys = (event) => {
    const all = links(), at = all.indexOf(document.activeElement);
    if (event.key === "ArrowDown" && event.target !== outcome) all[Math.min(at + 1, all.length - 1)]?.focus();
    else if (event.key === "ArrowUp" && at >= 0) (all[at - 1] ?? input).focus();
    else if (event.key === "Enter" && event.target === input) all[0]?.click();
    else if (event.key === "Escape" && at >= 0) input.focus();
    else if (event.key === "Escape") { input.value = outcome.value = ""; update(); }
    else return;
    event.preventDefault();
  };
  const box = make("div", { class: "search", role: "search" },
    make("div", { class: "pick" }, make("label", {}, "Search the turns", input), make("label", {}, "Outcome", outcome)),
    count, list);
  box.addEventListener("input", update);
  box.addEventListener("keydown", keys);
  return box;
}

if (data.trajectories.length > 0) app.before(searchBox());
