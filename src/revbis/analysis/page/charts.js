// Line charts with bands, hover and nearest-curve highlight, by uPlot.

const AXIS = { frames: "frames", updates: "updates", hours: "hours", score: "normalised score τ" };
const NAMES = new Map([["return", "mean return"], ["share", "share of runs above τ"]]);
const ROWS = 12; // of a tooltip
const NARROW = 740; // pixels of a page that is a phone's

/** Bands, behind the lines. */
function drawBands(u, curves) {
  curves.forEach((curve, i) => {
    const band = bandOf(curve);
    if (!band) return;
    const { ctx } = u;
    const at = (j, edge) => [u.valToPos(curve.x[j], "x", true), u.valToPos(edge[j], "y", true)];
    ctx.globalAlpha = 0.16 * (u.series[i + 1].alpha ?? 1);
    ctx.fillStyle = colour(curve.label);
    ctx.beginPath();
    for (let j = 0; j < curve.x.length; j++) ctx.lineTo(...at(j, band.high));
    for (let j = curve.x.length - 1; j >= 0; j--) ctx.lineTo(...at(j, band.low));
    ctx.fill();
  });
}

/** Single seeds, thin and behind their mean. */
function drawSeeds(u, curves) {
  const { ctx } = u;
  for (const curve of curves) {
    ctx.globalAlpha = 0.35;
    ctx.strokeStyle = colour(curve.label);
    ctx.lineWidth = devicePixelRatio;
    for (const { x, y } of curve.each ?? []) {
      ctx.beginPath();
      x.forEach((at, i) => ctx.lineTo(u.valToPos(at, "x", true), u.valToPos(y[i], "y", true)));
      ctx.stroke();
    }
  }
}

/** Scores to measure curves by: a dotted line with its name; above the scale the name alone. */
function drawMarks(u, marks) {
  const { ctx } = u;
  const { left, top, width } = u.bbox;
  const ratio = devicePixelRatio;
  ctx.globalAlpha = 1;
  ctx.strokeStyle = ctx.fillStyle = cssValue("--soft");
  ctx.lineWidth = ratio;
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  for (const { y, text } of marks) {
    const above = y > u.scales.y.max;
    const place = above ? top : u.valToPos(y, "y", true);
    if (!above) {
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(left, place);
      ctx.lineTo(left + width, place);
      ctx.stroke();
      ctx.setLineDash([]);
    }
    const below = above || place - top < 16 * ratio;
    ctx.textBaseline = below ? "top" : "bottom";
    ctx.fillText(above ? `↑ ${text}` : text, left + width - 4 * ratio,
      place + (below ? 3 : -2) * ratio);
  }
}

/** Training episodes and each evaluated one: only a page about one run has room for them. */
function drawDetail(u, detail) {
  const { ctx } = u;
  const ratio = devicePixelRatio;
  const place = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
  ctx.globalAlpha = 0.55;
  ctx.strokeStyle = cssValue("--soft");
  ctx.lineWidth = ratio;
  ctx.beginPath();
  detail.line.forEach(([x, y]) => ctx.lineTo(...place(x, y)));
  ctx.stroke();
  ctx.fillStyle = colour(detail.label);
  detail.dots.forEach(([x, y]) => {
    ctx.beginPath();
    ctx.arc(...place(x, y), 2.2 * ratio, 0, 2 * Math.PI);
    ctx.fill();
  });
}

function behind(u, curves, { detail, marks, each }) {
  const { left, top, width, height } = u.bbox;
  u.ctx.save();
  u.ctx.beginPath();
  u.ctx.rect(left, top, width, height);
  u.ctx.clip();
  drawBands(u, curves);
  if (each) drawSeeds(u, curves);
  if (detail) drawDetail(u, detail);
  drawMarks(u, marks ?? []);
  u.ctx.restore();
}

/** The index of the point of a curve that is nearest to the cursor; null beyond its ends. */
function nearest(u, series, index, x) {
  if (series === 0) return index;
  const xs = u.data[0];
  const column = u.data[series];
  let best = null;
  for (let i = index; i >= 0 && best === null; i--) if (column[i] !== null) best = i;
  for (let i = index; i < xs.length; i++) {
    if (column[i] === null) continue;
    if (best === null || Math.abs(xs[i] - x) < Math.abs(xs[best] - x)) best = i;
    break;
  }
  if (best === null) return null;
  const isEnd = xs[best] < x ? !column.slice(best + 1).some((y) => y !== null)
    : !column.slice(0, best).some((y) => y !== null);
  const slack = 0.03 * (u.scales.x.max - u.scales.x.min);
  return isEnd && Math.abs(xs[best] - x) > slack ? null : best;
}

/** Puts a tooltip beside the cursor, and all of it on the screen. */
function placeTip(box, plot, left, top) {
  const within = (wanted, size, room) => Math.max(4, Math.min(wanted, room - size - 4));
  box.style.left = box.style.top = "0px"; // so that its size does not depend on its last place
  const { offsetWidth: width, offsetHeight: height } = box;
  const beside = left > plot.width / 2 ? left - width - 14 : left + 14;
  const x = within(plot.left + beside, width, document.documentElement.clientWidth);
  const y = within(plot.top + Math.max(0, Math.min(top - 10, plot.height - height)), height,
    innerHeight);
  box.style.left = `${x - plot.left}px`;
  box.style.top = `${y - plot.top}px`;
}

/** A box beside the cursor with the value of every curve there. */
function tooltip(curves, xName, metric) {
  const box = html("div", { class: "tip", hidden: "" });
  let focused = null;
  const show = (u) => {
    const { left, top, idx } = u.cursor;
    box.hidden = left < 0 || idx === null || idx === undefined;
    if (box.hidden) return;
    const rows = curves
      .map((curve, i) => ({ curve, i, at: u.cursor.idxs[i + 1] }))
      .filter(({ at }) => at !== null && at !== undefined)
      .map((row) => ({ ...row, y: u.data[row.i + 1][row.at], x: u.data[0][row.at] }))
      .sort((a, b) => b.y - a.y);
    const near = rows.filter(({ i }) => i + 1 === focused);
    const shown = rows.slice(0, innerWidth < NARROW ? ROWS / 2 : ROWS);
    const more = rows.length - shown.length;
    box.replaceChildren(
      html("b", {}, `${short(near.length ? near[0].x : u.data[0][idx])} ${AXIS[xName]}`),
      ...shown.map(({ curve, i, y, x }) => {
        const error = curve.error ? curve.error[curve.x.indexOf(x)] : null;
        return html("div", { class: i + 1 === focused ? "near" : null }, swatch(curve.label),
          html("span", {}, curve.name), html("span", {}, withError(y, error, metric)));
      }),
      ...(more > 0 ? [html("small", {}, `and ${more} more`)] : []),
    );
    placeTip(box, u.over.getBoundingClientRect(), left, top);
  };
  return {
    init: (u) => { u.over.append(box); },
    setSeries: (u, series, options) => { if (options.focus) focused = series; },
    setCursor: show,
  };
}

function heights(curves, { detail, marks, each }) {
  const values = curves.flatMap((curve) => {
    const band = bandOf(curve);
    const seeds = each ? (curve.each ?? []).flatMap(({ y }) => y) : [];
    return [...seeds, ...(band ? [...band.low, ...band.high] : curve.y)];
  });
  values.push(...(marks ?? []).filter(({ y, far }) => !far || y <= 2 * Math.max(...values))
    .map(({ y }) => y));
  if (detail) values.push(...detail.dots.map(([, y]) => y), ...detail.line.map(([, y]) => y));
  return rangeOf(values);
}

/** The x range: from 0, unless a part was chosen. */
const fromZero = (u, low, high) => (low === u.data[0][0] ? [0, high || 1] : [low, high]);

/** Keeps which part of the x axis is shown: null for all of it. */
function keepZoom(u, key, zoom) {
  const [xs, { min, max }] = [u.data[0], u.scales.x];
  if (key === "x") zoom.range = min <= xs[0] && max >= xs.at(-1) ? null : [min, max];
}

/** Draws curves into an element: each {label, name, x, y, error? or low and high?, thin?, each?}.
 *
 * more: {detail?, marks?, each?}: a run's single episodes; scores to measure by, {y, text, far?}, of
 * which a far one is on the scale only if a curve comes half as high; whether seeds are drawn. */
function lineChart(plot, curves, xName, metric, zoom, more = {}) {
  const ink = cssValue("--soft");
  const rules = { stroke: cssValue("--grid"), width: 1 };
  const font = "12px system-ui, sans-serif";
  const axis = { stroke: ink, grid: rules, ticks: { ...rules, size: 4 }, font, labelFont: font,
    labelSize: 18 };
  const yRange = isShare(metric) || metric === "c" ? [-0.02, 1.02] : heights(curves, more);
  const tip = tooltip(curves, xName, metric);
  const percent = (values) => values.map((value) => `${Math.round(100 * value)}%`);
  const before = zoom.range;
  const chart = new uPlot({
    width: plot.clientWidth,
    height: plot.clientHeight,
    legend: { show: false },
    focus: { alpha: 0.25 },
    cursor: { focus: { prox: 30 }, dataIdx: nearest, drag: { x: true, y: false },
      y: false, points: { size: 7 } },
    scales: { x: { time: false, range: fromZero }, y: { range: () => yRange } },
    axes: [
      { ...axis, label: AXIS[xName], size: 32, space: 64,
        values: (u, splits) => splits.map(short) },
      { ...axis, label: NAMES.get(metric) ?? words(metric), size: 48, space: 36,
        values: (u, splits) => (isShare(metric) ? percent(splits) : splits.map(short)) },
    ],
    series: [{}, ...curves.map((curve) => ({
      label: curve.name,
      stroke: colour(curve.label),
      dash: dashes(curve.label),
      width: curve.thin ? 1.5 : 2,
      spanGaps: true,
      points: { show: curve.x.length <= (curve.thin ? 1 : 25), size: 5, fill: colour(curve.label) },
    }))],
    hooks: {
      init: [tip.init],
      setScale: [(u, key) => keepZoom(u, key, zoom)],
      setSeries: [tip.setSeries],
      setCursor: [tip.setCursor],
      drawAxes: [(u) => behind(u, curves, more)],
    },
  }, aligned(curves), plot);
  if (before) chart.setScale("x", { min: before[0], max: before[1] });
  return chart;
}
