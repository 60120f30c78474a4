// Small drawings: every seed of a group, and intervals for ablations.

const SMALL = { height: 112, left: 37, right: 8, top: 6, bottom: 16 };

const scaleTo = ([low, high], from, to) => (value) =>
  from + ((value - low) / (high - low || 1)) * (to - from);

/** How a run ended, at the end of its line. */
function endMark(state, x, y) {
  if (state === "unfinished") return svg("circle", { class: "mark", cx: x, cy: y, r: 3.2 });
  if (state === "stalled") {
    return svg("rect", { class: "mark", x: x - 2.8, y: y - 2.8, width: 5.6, height: 5.6 });
  }
  if (state !== "failed") return null;
  const path = `M${x - 3.5},${y - 3.5}l7,7m0,-7l-7,7`;
  return svg("path", { class: "mark", d: path });
}

/** One seed's line, with a text for the pointer that rests on it. */
function seedLine(run, curve, label, x, y, metric) {
  const points = curve.x.map((value, i) => `${x(value).toFixed(1)},${y(curve.y[i]).toFixed(1)}`);
  const last = curve.x.length - 1;
  const line = svg("polyline", { points: points.join(" "), fill: "none", "stroke-width": 1.3,
    "stroke-linejoin": "round", "stroke-opacity": 0.85 });
  const mark = endMark(run.state, x(curve.x[last]), y(curve.y[last]));
  const text = `seed ${run.seed}, ${run.state}: ${withError(curve.y[last], null, metric)} at ` +
    `${short(curve.frames[last])} frames`;
  const whole = svg("g", { class: `seed ${run.state}` }, svg("title", {}, text), line, mark);
  whole.style.stroke = colourName(label);
  return whole;
}

/** A group in small: a line for each seed, on the scale of its task. */
function multiple(group, curves, xRange, yRange, metric, width) {
  const { height, left, right, top, bottom } = SMALL;
  const x = scaleTo(xRange, left, width - right);
  const y = scaleTo(yRange, height - bottom, top);
  const label = (text, at, anchor) => svg("text", { ...at, "text-anchor": anchor }, text);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${group.runs.length} seeds` },
    svg("line", { class: "rule", x1: left, x2: width - right, y1: height - bottom,
      y2: height - bottom }),
    svg("line", { class: "rule", x1: left, x2: left, y1: top, y2: height - bottom }),
    label(short(yRange[1]), { x: left - 3, y: top + 8 }, "end"),
    label(short(yRange[0]), { x: left - 3, y: height - bottom }, "end"),
    label(short(xRange[1]), { x: width - right, y: height - 4 }, "end"),
    label("0", { x: left, y: height - 4 }, "middle"),
    ...group.runs.flatMap((run, i) =>
      curves[i].x.length ? [seedLine(run, curves[i], group.label, x, y, metric)] : []),
  );
}

/** How many seeds of a group are not finished, have stalled or failed. */
function standing(group) {
  const odd = group.runs.filter((run) => run.state !== "finished");
  const many = `${group.runs.length} seed${group.runs.length === 1 ? "" : "s"}`;
  if (!odd.length) return many;
  const states = [...new Set(odd.map((run) => run.state))];
  return states
    .map((state) => `${odd.filter((run) => run.state === state).length} of ${many} ${state}`)
    .join(", ");
}

/** Families of a revised method, its ablations and its base, each with the methods in it. */
function families(groups) {
  const bases = [...new Set(groups.map(({ method }) => method)
    .filter((method) => method.includes("-rev")).map((method) => method.split("-rev")[0]))];
  return bases.sort().flatMap((base) => {
    const wanted = [`${base}-rev`, `${base}-rev-no-c`, `${base}-rev-no-sa`, base];
    const members = groups.filter(({ method }) => wanted.includes(method))
      .sort((a, b) => wanted.indexOf(a.method) - wanted.indexOf(b.method));
    return new Set(members.map(({ method }) => method)).size > 1 ? [{ base, groups: members }] : [];
  });
}

/** Mean, interval and single values of the seeds' best evaluations within the budget. */
function bests(group, metric) {
  const values = group.best[metric];
  const ends = group.best_ends[metric];
  return { group, values, mean: values.length ? mean(values) : null, ends };
}

/** A mean with its interval, or with the number of seeds that are too few for one. */
function withEnds({ mean: value, ends, values }, metric) {
  const share = metric === "success";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  const shown = (number) => (share ? `${(100 * number).toFixed(0)}%` : number.toFixed(digits));
  return ends ? `${shown(value)} [${ends.map(shown).join(", ")}]`
    : `${shown(value)}, ${values.length} seed${values.length === 1 ? "" : "s"}`;
}

const clipped = (text, room) => (text.length > room ? `${text.slice(0, room - 1)}…` : text);

/** Rows of methods: seeds as dots, their mean, a line for its interval where there is one. */
function intervals(rows, names, metric, width) {
  const narrow = width < 440; // the name of a method is then above its line
  const [step, above] = narrow ? [54, 22] : [34, 0];
  const [left, right] = [narrow ? 6 : Math.min(190, width * 0.34), 124];
  const height = rows.length * step + 30;
  const range = metric === "success" ? [0, 1] : rangeOf(rows.flatMap((row) => [...row.values, ...(row.ends ?? [])]));
  const x = scaleTo(range, left, width - right);
  const drawn = rows.flatMap((row, i) => {
    const y = i * step + 18 + above;
    const line = { y1: y, y2: y, "stroke-width": 3, "stroke-linecap": "round" };
    const marks = svg("g", {},
      row.ends ? svg("line", { ...line, x1: x(row.ends[0]), x2: x(row.ends[1]) }) : null,
      ...row.values.map((value) =>
        svg("circle", { cx: x(value), cy: y + 9, r: 2.2, "stroke-width": 0, opacity: 0.6 })),
      svg("circle", { cx: x(row.mean), cy: y, r: 5, "stroke-width": 0 }));
    marks.style.stroke = marks.style.fill = colourName(row.group.label);
    const rule = svg("line", { class: "rule", x1: left, x2: width - right, y1: y, y2: y });
    return [rule, marks,
      svg("text", { class: "label", x: 0, y: y + 4 - above },
        clipped(names[row.group.label], (narrow ? width : left) / 7),
        svg("title", {}, names[row.group.label])),
      svg("text", { x: width, y: y + 4, "text-anchor": "end" },
        withEnds(row, metric))];
  });
  const ends = range.map((value, i) => svg("text", { x: x(value), y: height - 4,
    "text-anchor": i ? "end" : "start" },
    metric === "success" ? `${100 * value}%` : short(value)));
  return svg("svg", { class: "intervals", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "best evaluations by method" }, ...drawn, ...ends);
}
