// The page: choices, controls, and drawing what comes into view.

const data = JSON.parse(document.getElementById("data").textContent);
const hasSuccess = data.groups.some(({ runs }) => runs.some((run) => run.success));
const alone = data.groups.length === 1 && data.groups[0].runs.length === 1;
const CHOICES = {
  metric: { name: "metric", options: [["score", "score"], ["return", "return"],
    ["success", "success"]] },
  x: { name: "x axis", options: [["frames", "frames"], ["updates", "updates"], ["hours", "hours"]] },
  smooth: { name: "smoothing", options: [["0", "none"], ["0.5", "EWMA α = 0.5"],
    ["0.2", "EWMA α = 0.2"]] },
  seeds: { name: "seeds", options: [["mean", "mean and band"], ["each", "every seed"]] },
  scale: { name: "y axis", options: [["data", "to the data"], ["maximum", "to the maximum"]] },
};
// Metrics that are drawn unfolded: losses, values, and those that alarms are raised for.
const IMPORTANT = /(loss|_q1|target_q|reward_share|near_zero_fraction|effective_rank|embedding_norm)$|gradient/;
const state = { metric: "score", x: "frames", smooth: "0", seeds: "mean", scale: "data",
  labels: new Set(), tasks: new Set() };
const cards = []; // {element, draw, dirty}
const charts = {}; // by section and task, for those who look from outside
const zooms = {}; // {range} by section, task and x axis

// The choices are kept in the address, so that reloads and copied links keep them.

function readAddress() {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const [name, { options }] of Object.entries(CHOICES)) {
    if (options.some(([value]) => value === kept.get(name))) state[name] = kept.get(name);
  }
  if (!hasSuccess) state.metric = "score";
  for (const [kind, names] of [["labels", data.labels], ["tasks", data.tasks]]) {
    const off = kept.getAll(`no-${kind}`);
    state[kind] = new Set(off.map((name) => names.indexOf(name)).filter((i) => i >= 0));
  }
}

function writeAddress() {
  const kept = new URLSearchParams();
  for (const [name, { options }] of Object.entries(CHOICES)) {
    if (state[name] !== options[0][0]) kept.set(name, state[name]);
  }
  for (const [kind, names] of [["labels", data.labels], ["tasks", data.tasks]]) {
    for (const i of state[kind]) kept.append(`no-${kind}`, names[i]);
  }
  history.replaceState(null, "", `#${kept}`);
}

// What a reload would also lose: zooms and folds.

const folds = () => [...document.querySelectorAll("details")];
const STORE = `revbis ${location.pathname}`;

function keep() {
  sessionStorage.setItem(STORE, JSON.stringify({ zooms, folds: folds().map(({ open }) => open) }));
}

function restore() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(STORE)) ?? {};
    sessionStorage.removeItem(STORE);
    Object.assign(zooms, kept.zooms);
    if (kept.folds?.length === folds().length) {
      folds().forEach((fold, i) => { fold.open = kept.folds[i]; });
    }
  } catch { /* a browser that stores nothing */ }
}

/** Reloads a page that is still being updated, unless it is in use. */
function reloadLater(seconds) {
  setTimeout(() => {
    const busy = document.querySelector(".tip:not([hidden])")
      || [...document.querySelectorAll("video")].some((video) => !video.paused);
    return busy ? reloadLater(1) : reload();
  }, 1000 * seconds);
}

function reload() {
  try { keep(); } catch { /* as above */ }
  location.reload();
}

// Controls.

function choice(name) {
  const { name: shown, options } = CHOICES[name];
  const select = html("select", { id: `choose-${name}` }, ...options.map(([value, text]) =>
    html("option", { value }, text)));
  select.value = state[name];
  select.addEventListener("change", () => { state[name] = select.value; changed(); });
  return html("label", { class: "choice" }, shown, select);
}

function chips(kind, names) {
  const boxes = names.map((_, i) => {
    const box = html("input", { type: "checkbox", id: `${kind}-${i}` });
    box.checked = !state[kind].has(i);
    box.addEventListener("change", () => {
      state[kind][box.checked ? "delete" : "add"](i);
      changed();
    });
    return box;
  });
  const all = (on, text) => {
    const button = html("button", { type: "button", id: `${kind}-${text}` }, text);
    button.addEventListener("click", () => {
      state[kind] = new Set(on ? [] : names.keys());
      boxes.forEach((box) => { box.checked = on; });
      changed();
    });
    return button;
  };
  const title = kind === "labels" ? "methods" : "tasks";
  return html("div", { role: "group", "aria-label": title }, html("span", { class: "name" }, title),
    html("div", { class: "chips" }, ...names.map((name, i) => html("label", { class: "chip" },
      boxes[i], kind === "labels" ? swatch(i) : null, html("span", {}, name)))),
    ...(names.length > 2 ? [all(true, "all"), all(false, "none")] : []));
}

function links() {
  const parts = [...document.querySelectorAll("main > section[id]")]
    .filter((part) => !part.hidden || part.id === "seeds");
  return html("nav", { id: "links", "aria-label": "Sections" }, ...parts.map((part) => {
    const link = html("a", { href: `#${part.id}` }, part.id);
    link.addEventListener("click", (event) => { // the address is taken
      event.preventDefault();
      part.scrollIntoView();
    });
    return link;
  }));
}

function makeControls() {
  const offered = { metric: hasSuccess, seeds: !alone, scale: data.tasks.some((_, i) => maximal(i)) };
  const names = Object.keys(CHOICES).filter((name) => offered[name] ?? true);
  const form = document.getElementById("controls");
  form.addEventListener("submit", (event) => event.preventDefault());
  document.querySelector("main").prepend(links());
  form.append(html("div", {}, ...names.map(choice)));
  if (data.labels.length > 1) form.append(chips("labels", data.labels));
  if (data.tasks.length > 1) form.append(chips("tasks", data.tasks));
}

// Cards.

const alpha = () => Number(state.smooth);
const visible = (group) => !state.labels.has(group.label) && !state.tasks.has(group.task);
const ofTask = (task) => data.groups.filter((group) => group.task === task);
function metricOf(groups) {
  const metric = state.metric === "score" ? data.measures[groups[0].task] : state.metric;
  return groups.some(({ runs }) => runs.some((run) => run[metric])) ? metric : "return";
}

function addCard(element, draw) {
  cards.push({ element, draw, dirty: true });
  return element;
}

function empty(plot, text) {
  plot.replaceChildren(html("p", { class: "empty" }, text));
}

function chartCard(key, task, curvesOf, why, name = data.tasks[task]) {
  const plot = html("div", { class: "plot" });
  const title = html("h3", {}, name);
  const element = html("div", { class: "card", "data-task": task }, title, plot);
  return addCard(element, () => {
    charts[key]?.destroy();
    delete charts[key];
    plot.replaceChildren();
    const { curves, metric, x = state.x, ...more } = curvesOf();
    const zoom = (zooms[`${key}-${x}`] ??= { range: null });
    if (curves.length) charts[key] = lineChart(plot, curves, x, metric, zoom, more);
    else empty(plot, why);
  });
}

/** The highest return of a task; null where it is not known, or scores are no returns. */
const maximal = (task) => (data.measures[task] === "return" ? data.maximal[task] : null);

/** What curves are measured by: the untrained agents, and the highest return there is. */
function marksOf(task, groups, metric) {
  const starts = groups.flatMap(({ runs }) => runs).flatMap((run) =>
    (run.frames[0] === 0 && run[metric] ? [run[metric][0]] : [])).filter((value) => value !== null);
  const marks = starts.length ? [{ y: mean(starts), text: "untrained (frame 0)" }] : [];
  const top = metric === "return" ? maximal(task) : null;
  if (top !== null) {
    marks.push({ y: top, text: `maximal return ${top.toLocaleString("en")}`, far: state.scale === "data" });
  }
  return marks;
}

function curveCard(task) {
  const card = chartCard(`curves-${task}`, task, () => {
    const groups = ofTask(task);
    const metric = metricOf(groups);
    const curves = groups.filter(visible)
      .map((group) => ({ label: group.label, name: data.labels[group.label],
        ...groupCurve(group, metric, state.x, alpha()) }))
      .filter((curve) => curve.x.length);
    return { curves, metric, marks: marksOf(task, groups, metric), each: state.seeds === "each",
      detail: alone && metric === "return" ? detailOf(groups[0]) : null };
  }, "No evaluation that all seeds share, or no method is switched on.");
  if (alone) {
    document.getElementById("curves-note").textContent = "Mean return of each evaluation. Drag "
      + "sideways to zoom in, double-click to zoom out.";
    card.append(html("p", { class: "key-line" }, "Dots: single evaluation episodes. Grey: training "
      + "episodes, with exploration noise."));
  }
  return card;
}

function detailOf(group) {
  const [run] = group.runs;
  const known = ([x, y]) => x !== null && y !== null;
  const { training } = run;
  return {
    label: group.label,
    dots: run.episodes.flatMap((values, i) => values.map((value) => [run[state.x][i], value]))
      .filter(known),
    line: (training.values.episode_return ?? []).map((y, i) => [training[state.x][i], y])
      .filter(known),
  };
}

/** A run's values of a metric, with their frames, updates and hours: of its training lines, or of
 * its evaluations where these alone have it. */
function recorded(run, metric) {
  const lines = Object.hasOwn(run.training.values, metric);
  const { frames, updates, hours } = lines ? run.training : run;
  const values = lines ? run.training.values : run.status;
  return { frames, updates, hours, value: Object.hasOwn(values, metric) ? values[metric] : null };
}

/** One metric: a group's mean or, where that is chosen, a line for each seed. */
function metricCurves(group, metric) {
  const { label } = group;
  const seeds = group.runs.map((run) => ({ label, thin: true,
    name: alone ? data.labels[label] : `${data.labels[label]} · seed ${run.seed}`,
    ...seedCurve(recorded(run, metric), "value", state.x, 0) }));
  return state.seeds === "each" ? seeds
    : [{ label, name: data.labels[label], thin: true, ...meanCurve(seeds) }];
}

function metricCard(section, task, metric, why, name) {
  return chartCard(`${section}-${task}`, task, () => ({
    metric,
    curves: ofTask(task).filter(visible).flatMap((group) => metricCurves(group, metric))
      .filter((curve) => curve.x.length),
  }), why, name);
}

const metricsOf = (task) => [...new Set(ofTask(task).flatMap(({ runs }) => runs.flatMap((run) =>
  [...Object.keys(run.training.values), ...Object.keys(run.status)])))];

/** A task's metrics, the less important ones folded; only the first task of many is unfolded. */
function trainingBlock(task, place) {
  const metrics = metricsOf(task).filter((name) => !["c", "episode_return"].includes(name)).sort();
  if (!metrics.length) return [];
  const grid = (names) => html("div", { class: "grid small" }, ...names.map((name) => metricCard(
    `training-${name}`, task, name, "No method with this metric is switched on.", words(name))));
  const important = metrics.filter((name) => IMPORTANT.test(name));
  const others = metrics.filter((name) => !IMPORTANT.test(name));
  const folded = others.length && important.length
    ? html("details", {}, html("summary", {}, `${others.length} more metrics`), grid(others))
    : grid(others);
  return [html("details", { "data-task": task, open: place ? null : "" },
    html("summary", {}, data.tasks[task]), grid(important), folded)];
}

/** Performance profiles of all methods over all tasks. */
function profileCard() {
  const card = chartCard("profiles", null, () => ({
    x: "score",
    metric: "share",
    curves: data.profiles.filter(({ label }) => !state.labels.has(label))
      .map((profile) => ({ name: data.labels[profile.label], ...profile })),
  }), "No method is switched on.", "Performance profiles");
  card.append(html("p", { class: "key-line" }, "Share of runs whose normalised final score is above "
    + "τ, each task with equal weight; bands are Wilson's pointwise 95% intervals; none with fewer "
    + "than 4 seeds of a task."));
  return card;
}

/** The inner width of an element: a drawing of this width keeps its text at its own size. */
function inner(element, least) {
  const { paddingLeft, paddingRight } = getComputedStyle(element);
  return Math.max(element.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight), least);
}

function seedsBlock(task) {
  const groups = ofTask(task);
  const figures = groups.map((group) => html("figure", { "data-task": task, "data-label": group.label }));
  const block = html("div", { "data-task": task }, html("h3", {}, data.tasks[task]),
    html("div", { class: "multiples" }, ...figures));
  return addCard(block, () => {
    const metric = metricOf(groups);
    const curves = groups.map((group) =>
      group.runs.map((run) => seedCurve(run, metric, state.x, alpha())));
    const every = curves.flat();
    const yRange = metric === "success" ? [0, 1] : rangeOf(every.flatMap(({ y }) => y));
    const known = every.some(({ x }) => x.length);
    const xRange = [0, every.reduce((top, { x }) => Math.max(top, x.at(-1) ?? 0), 1e-9)];
    groups.forEach((group, i) => figures[i].replaceChildren(
      html("figcaption", {}, html("span", {}, data.labels[group.label]),
        html("small", {}, standing(group))),
      known ? multiple(group, curves[i], xRange, yRange, metric, inner(figures[i], 140))
        : html("small", {}, "no evaluation yet")));
  });
}

function ablationCards(task) {
  return families(ofTask(task)).map(({ base, groups }) => {
    const box = html("div");
    const title = html("h3", {}, `${data.tasks[task]} · ${base}`);
    return addCard(html("div", { class: "card", "data-task": task }, title, box), () => {
      const metric = metricOf(groups);
      const rows = groups.filter(visible).map((group) => bests(group, metric))
        .filter((row) => row.values.length);
      box.replaceChildren(intervals(rows, data.labels, metric, Math.max(box.clientWidth, 260)));
    });
  });
}

// Drawing: only what is in view, the rest when it comes into view.

const seen = new Set();
function drawCard(card) {
  if (!card.dirty || card.element.closest("[hidden], details:not([open])")) return;
  card.dirty = false;
  card.draw();
}
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    seen[isIntersecting ? "add" : "delete"](target);
  }
  cards.filter((card) => seen.has(card.element)).forEach(drawCard);
}, { rootMargin: "300px" });

function redraw() {
  cards.forEach((card) => { card.dirty = true; });
  cards.filter((card) => seen.has(card.element)).forEach(drawCard);
}

function changed() {
  for (const node of document.querySelectorAll("[data-task], [data-label]")) {
    const { task, label } = node.dataset;
    const hidden = label?.split(" ").some((each) => state.labels.has(Number(each)));
    node.hidden = state.tasks.has(Number(task)) || hidden;
  }
  const seeds = document.getElementById("seeds");
  seeds.hidden = alone || state.seeds !== "each";
  const link = document.querySelector('#links a[href="#seeds"]');
  if (link) link.hidden = seeds.hidden;
  writeAddress();
  redraw();
}

function fillSection(name, made) {
  const grid = document.getElementById(`${name}-grid`);
  grid.append(...made);
  if (made.length === 1) grid.classList.add("alone");
  document.getElementById(name).hidden = made.length === 0;
}

function start() {
  readAddress();
  const tasks = [...data.tasks.keys()];
  fillSection("curves", tasks.map(curveCard));
  fillSection("seeds", alone ? [] : tasks.map(seedsBlock));
  fillSection("c", tasks.filter((task) => metricsOf(task).includes("c")).map((task) =>
    metricCard("c", task, "c", "No method that reports c is switched on.")));
  fillSection("training", tasks.flatMap(trainingBlock));
  fillSection("ablations", tasks.flatMap(ablationCards));
  if (data.profiles.length) document.getElementById("profiles").append(profileCard());
  makeControls();
  restore();
  changed();
  cards.forEach((card) => observer.observe(card.element));
  let width = innerWidth;
  addEventListener("resize", () => { // a phone's bars change the height alone
    if (innerWidth !== width) redraw();
    width = innerWidth;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => cards.forEach(drawCard));
  const { refresh } = document.documentElement.dataset;
  if (refresh) reloadLater(Number(refresh));
  window.revbis = { state, charts, smooth, groupCurve, data, reload,
    drawAll: () => cards.forEach(drawCard) };
}
start();
