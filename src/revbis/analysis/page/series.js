// From evaluations to curves: smoothing, averaging over seeds, one x array for all.

/** y_t = α x_t + (1 − α) y_{t−1}; without α the values themselves. */
function smooth(values, alpha) {
  if (!alpha) return values;
  let last = null;
  return values.map((value) => {
    if (value === null) return null;
    last = last === null ? value : alpha * value + (1 - alpha) * last;
    return last;
  });
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Standard error of the mean; null for one value. */
function standardError(values) {
  if (values.length < 2) return null;
  const centre = mean(values);
  const squares = values.reduce((sum, value) => sum + (value - centre) ** 2, 0);
  return Math.sqrt(squares / (values.length - 1) / values.length);
}

/** One seed's curve: x, y and the frames they belong to, where all of them are known. */
function seedCurve(run, metric, x, alpha) {
  const values = run[metric];
  const curve = { x: [], y: [], frames: [] };
  if (!values) return curve;
  smooth(values, alpha).forEach((value, i) => {
    if (value === null || run[x][i] === null) return;
    curve.x.push(run[x][i]);
    curve.y.push(value);
    curve.frames.push(run.frames[i]);
  });
  return curve;
}

/** A group's mean curve with its error, at the frames that all evaluated seeds have. */
function groupCurve(group, metric, x, alpha) {
  const seeds = group.runs
    .map((run) => seedCurve(run, metric, x, alpha))
    .filter((curve) => curve.frames.length);
  const places = seeds.map((curve) => new Map(curve.frames.map((frame, i) => [frame, i])));
  const curve = { x: [], y: [], error: [], frames: [], seeds: seeds.length };
  for (const frame of seeds.length ? [...places[0].keys()] : []) {
    const at = places.map((place) => place.get(frame));
    if (at.includes(undefined)) continue;
    const values = at.map((place, i) => seeds[i].y[place]);
    curve.frames.push(frame);
    curve.x.push(mean(at.map((place, i) => seeds[i].x[place])));
    curve.y.push(mean(values));
    curve.error.push(standardError(values));
  }
  return curve;
}

/** The edges of a curve's band: its interval, or one standard error either way; null for none. */
function bandOf({ y, error, low, high }) {
  if (low) return { low, high };
  if (!error || error.some((each) => each === null)) return null;
  return { low: y.map((value, i) => value - error[i]), high: y.map((value, i) => value + error[i]) };
}

/** Curves as uPlot takes them: every x once, ascending, and null where a curve has no point. */
function aligned(curves) {
  const xs = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const place = new Map(xs.map((x, i) => [x, i]));
  return [xs, ...curves.map((curve) => {
    const column = new Array(xs.length).fill(null);
    curve.x.forEach((x, i) => { column[place.get(x)] = curve.y[i]; });
    return column;
  })];
}

/** The lowest and the highest value, with a margin. */
function rangeOf(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || Number.isNaN(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  const margin = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 && low < 0.35 * high ? 0 : low - margin, high + margin];
}
