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

/** A curve's x or y at a frame: between its points along a line; null beyond its ends. */
function valueAt(curve, values, frame) {
  const { frames } = curve;
  let [low, high] = [0, frames.length - 1];
  if (frame < frames[low] || frame > frames[high]) return null;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (frames[middle] <= frame) low = middle; else high = middle;
  }
  if (frame === frames[high]) return values[high];
  return values[low] + (values[high] - values[low]) * (frame - frames[low]) / (frames[high] - frames[low]);
}

/** The mean of seeds' curves with its error, at the frames that lie within all of them. */
function averaged(seeds, frames) {
  const curve = { x: [], y: [], error: [], frames: [], seeds: seeds.length, each: seeds };
  for (const frame of frames) {
    const values = seeds.map((seed) => valueAt(seed, seed.y, frame));
    if (values.includes(null)) continue;
    curve.frames.push(frame);
    curve.x.push(mean(seeds.map((seed) => valueAt(seed, seed.x, frame))));
    curve.y.push(mean(values));
    curve.error.push(standardError(values));
  }
  return curve;
}

const known = (curves) => curves.filter(({ frames }) => frames.length);

/** A group's mean curve of evaluations, at the frames that all evaluated seeds have. */
function groupCurve(group, metric, x, alpha) {
  const seeds = known(group.runs.map((run) => seedCurve(run, metric, x, alpha)));
  const places = seeds.map(({ frames }) => new Set(frames));
  const shared = (seeds[0]?.frames ?? []).filter((frame) => places.every((own) => own.has(frame)));
  return averaged(seeds, shared);
}

/** The mean of curves of training lines, which seeds log at frames of their own. */
function meanCurve(curves) {
  const seeds = known(curves);
  const fewest = seeds.reduce((best, seed) =>
    (best && best.frames.length <= seed.frames.length ? best : seed), null);
  return averaged(seeds, fewest?.frames ?? []);
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

/** From the lowest to the highest value, with 0 and a margin. */
function rangeOf(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value === null || Number.isNaN(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  const margin = (high - low) * 0.06;
  return low === high ? [0, 1] : [low && low - margin, high && high + margin];
}
