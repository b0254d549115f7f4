// --- trajectory viewer: every text from a model goes through textContent --------------------------------------

const data = JSON.parse(document.getElementById("viewer-data").textContent);
const app = document.getElementById("viewer-app");

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

const TOKENS = {
  c: /(\/\/[^\n]*|\/\*[\s\S]*?\*\/)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(#[ \t]*[a-z]+|\b(?:alignas|auto|bool|break|case|char|class|const|constexpr|continue|default|do|double|else|enum|extern|false|float|for|goto|if|inline|int|long|namespace|operator|return|short|signed|sizeof|static|struct|switch|template|true|typedef|typename|uint32_t|int32_t|int64_t|uint64_t|size_t|unsigned|using|void|volatile|while|__global__|__device__|__shared__|__restrict__|__syncthreads)\b)|(\b\d[\w.]*)/g,
  python: /(#[^\n]*)|("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(\b(?:and|as|assert|break|class|continue|def|del|elif|else|False|for|from|global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|self|True|while|with|yield)\b)|(\b\d[\w.]*)/g,
};

function coloured(source, language) {
  const pre = make("pre", { class: "code", tabindex: "0" });
  let last = 0;
  for (const match of source.matchAll(TOKENS[language === "python" ? "python" : "c"])) {
    pre.append(source.slice(last, match.index));
    const kind = ["c", "s", "k", "n"][[1, 2, 3, 4].find((i) => match[i] !== undefined) - 1];
    pre.append(make("span", { class: "tok-" + kind }, match[0]));
    last = match.index + match[0].length;
  }
  pre.append(source.slice(last));
  return pre;
}

function diffView(diff) {
  const pre = make("pre", { class: "code", tabindex: "0" });
  if (diff === "") {
    pre.append("(the same kernel)");
    return pre;
  }
  for (const line of diff.split("\n").slice(2)) {
    const kind = { "+": "add", "-": "del", "@": "hunk" }[line[0]] ?? "same";
    pre.append(make("span", { class: "line-" + kind }, line + "\n"));
  }
  return pre;
}

function fold(title, note, fill) {
  const details = make("details", {}, make("summary", {}, title + (note ? " · " + note : "")));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(...fill());
  });
  return details;
}

function outcomeOf(turn) {
  return turn.outcome === null ? { label: "no verdict (the harness failed)", icon: "–" } : data.outcomes[turn.outcome];
}

function times(speedup) {
  return speedup.toFixed(2) + "×";
}

function best(trajectory) {
  return Math.max(0, ...trajectory.turns.map((turn) => turn.speedup ?? 0));
}

function turnPanel(turn) {
  const outcome = outcomeOf(turn);
  const verdict = make("div", { class: "verdict" },
    make("span", { class: "chip o-" + turn.outcome }, make("span", { "aria-hidden": "true" }, outcome.icon), outcome.label),
    turn.speedup === null ? null : make("span", { class: "speedup" }, times(turn.speedup)),
    make("span", { class: "meta" }, [
      turn.reason, turn.tokens[0].toLocaleString("en") + " prompt tokens", turn.tokens[1].toLocaleString("en") + " answered",
      turn.cut ? "cut off at the length limit" : null,
    ].filter(Boolean).join(" · ")));
  const panel = make("div", { class: "turn-panel", role: "tabpanel", id: "turn-panel", tabindex: "0" }, verdict);
  if (turn.summary) panel.append(make("p", {}, make("b", {}, "Summary: "), turn.summary));
  const feedback = data.texts[turn.feedback];
  if (feedback) panel.append(make("h4", {}, "Feedback"), make("pre", { class: "wrap", tabindex: "0" }, feedback));
  if (turn.prompt.length > 0) {
    panel.append(fold("Prompt", turn.prompt.length + (turn.prompt.length === 1 ? " message" : " messages"), () =>
      turn.prompt.map(([role, text]) =>
        make("div", { class: "message" }, make("b", {}, role), make("pre", { class: "wrap", tabindex: "0" }, data.texts[text])))));
  }
  const thought = data.texts[turn.thought];
  if (thought) panel.append(fold("Chain of thought", thought.length.toLocaleString("en") + " characters", () =>
    [make("pre", { class: "wrap", tabindex: "0" }, thought)]));
  if (turn.kernel === null) {
    panel.append(make("h4", {}, "Answer (no kernel was found in it)"),
      make("pre", { class: "wrap", tabindex: "0" }, data.texts[turn.answer] || "(empty)"));
    return panel;
  }
  const columns = make("div", { class: "two" },
    make("div", {}, make("h4", {}, "Kernel"), coloured(data.texts[turn.kernel], data.code)));
  if (turn.diff !== null) {
    columns.append(make("div", {}, make("h4", {}, "Changes since turn " + turn.diff_to), diffView(data.texts[turn.diff])));
  }
  panel.append(columns);
  return panel;
}

function distinct(values) {
  return [...new Set(values)];
}

const state = { task: 0, policy: 0, number: 0, turn: 1 };

function inTask() {
  return data.trajectories.filter((t) => t.task === state.task);
}

function inPolicy() {
  return inTask().filter((t) => t.policy === state.policy);
}

// Replaces what does not exist under the choices before it by the first that does.
function settle() {
  const keep = (value, values) => (values.includes(value) ? value : values[0]);
  state.task = keep(state.task, distinct(data.trajectories.map((t) => t.task)).sort((a, b) => a - b));
  state.policy = keep(state.policy, distinct(inTask().map((t) => t.policy)));
  state.number = keep(state.number, inPolicy().map((t) => t.number));
  const trajectory = inPolicy().find((t) => t.number === state.number);
  state.turn = keep(state.turn, trajectory.turns.map((t) => t.turn));
  return trajectory;
}

function address({ task, policy, number, turn }) {
  const parts = [data.tasks[task].id, data.policies[policy].id, number, turn].join("/");
  return "#view/" + encodeURI(parts).replaceAll("#", "%23").replaceAll("?", "%3F");
}

// An address that somebody typed need not be a well-formed one.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Task ids hold slashes themselves, so the address is read from its known parts: the longest task id that fits.
function readAddress() {
  const text = decoded(location.hash);
  if (!text.startsWith("#view/")) return false;
  const path = text.slice("#view/".length);
  const fits = data.tasks.map((task, i) => [task.id, i]).filter(([id]) => path === id || path.startsWith(id + "/"));
  if (fits.length === 0) return false;
  const [id, task] = fits.sort((a, b) => b[0].length - a[0].length)[0];
  const rest = path.slice(id.length + 1).split("/");
  state.task = task;
  const policy = data.policies.findIndex((p) => p.id === rest[0]);
  if (policy >= 0) Object.assign(state, { policy, number: Number(rest[1]), turn: Number(rest[2]) });
  else Object.assign(state, { number: -1, turn: 1 });
  return true;
}

function choice(label, options, value, choose) {
  const select = make("select", { id: "pick-" + label.toLowerCase() },
    ...options.map(([key, text]) => make("option", { value: key, selected: key === value }, text)));
  select.addEventListener("change", () => {
    choose(Number(select.value));
    show(true);
    document.getElementById(select.id).focus();
  });
  return make("label", {}, label, select);
}

function turnTabs(trajectory) {
  const tabs = make("div", { class: "turns", role: "tablist", "aria-label": "Turns" }, ...trajectory.turns.map((turn) => {
    const outcome = outcomeOf(turn), chosen = turn.turn === state.turn;
    const tab = make("button", {
      type: "button", role: "tab", class: "o-" + turn.outcome, "aria-selected": String(chosen),
      tabindex: chosen ? "0" : "-1", "aria-controls": "turn-panel",
    }, make("small", {}, "Turn " + turn.turn), outcome.icon + " " + (turn.speedup === null ? outcome.label : times(turn.speedup)));
    tab.addEventListener("click", () => { state.turn = turn.turn; show(true); focusTab(); });
    return tab;
  }));
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const numbers = trajectory.turns.map((turn) => turn.turn);
    state.turn = numbers[(numbers.indexOf(state.turn) + step + numbers.length) % numbers.length];
    show(true);
    focusTab();
  });
  return tabs;
}

function focusTab() {
  app.querySelector('[role="tab"][aria-selected="true"]').focus({ preventScroll: true });
}

function show(remember) {
  const trajectory = settle();
  const task = data.tasks[state.task];
  const tasks = distinct(data.trajectories.map((t) => t.task)).sort((a, b) => a - b);
  app.replaceChildren(
    make("div", { class: "pick" },
      choice("Task", tasks.map((i) => [i, data.tasks[i].id]), state.task, (v) => Object.assign(state, { task: v, number: -1, turn: 1 })),
      choice("Policy", distinct(inTask().map((t) => t.policy)).map((i) => [i, data.policies[i].label]), state.policy,
        (v) => Object.assign(state, { policy: v, number: -1, turn: 1 })),
      choice("Trajectory", inPolicy().map((t) => [t.number, "no. " + t.number + (best(t) > 0 ? ", best " + times(best(t)) : ", none correct")]),
        state.number, (v) => Object.assign(state, { number: v, turn: 1 }))),
    make("p", { class: "meta" }, [task.ops.length ? "Operators: " + task.ops.join(" → ") : null,
      task.flaws.length ? "known flaws: " + task.flaws.join(", ") : null].filter(Boolean).join(" · ")),
    turnTabs(trajectory),
    turnPanel(trajectory.turns.find((turn) => turn.turn === state.turn)),
  );
  if (data.num_left_out > 0) {
    app.append(make("p", { class: "meta" }, data.num_left_out + " further trajectories were left out to keep this page small."));
  }
  if (remember) history.replaceState(null, "", address(state));
}

function openAddress() {
  if (!readAddress()) return;
  show(true);
  document.getElementById("viewer").scrollIntoView();
}

if (data.trajectories.length === 0) {
  app.replaceChildren(make("p", { class: "meta" }, "No trajectories were kept (report.viewer_trajectories)."));
} else {
  show(false);
  openAddress();
  window.addEventListener("hashchange", openAddress);
}
