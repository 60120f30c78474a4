// Elements, colours, dashes and numbers as text. Names enter the page as text nodes only.

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 12; // --s0 to --s11; further methods have shades of them
const SHADES = [null, "var(--ink) 40%", "var(--card) 45%"];
const DASHES = [[], [9, 4], [2, 3], [12, 3, 2, 3], [5, 3], [14, 5], [2, 2, 7, 2], [1, 5]];

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}
const html = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/** A method has its colour and its dashes. */
function colourName(label) {
  const base = `var(--s${label % COLOURS})`;
  const shade = SHADES[Math.floor(label / COLOURS) % SHADES.length];
  return shade ? `color-mix(in srgb, ${base}, ${shade})` : base;
}
const dashes = (label) => DASHES[(label + Math.floor(label / DASHES.length)) % DASHES.length];
const cssValue = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (label) => colourName(label).replace(/var\((.*?)\)/g, (_, name) => cssValue(name));

function swatch(label) {
  const line = svg("line", { x1: 1, x2: 27, y1: 5, y2: 5, "stroke-width": 2.5 });
  line.style.stroke = colourName(label);
  line.style.strokeDasharray = dashes(label).join(" ");
  return svg("svg", { class: "swatch", width: 28, height: 10, "aria-hidden": "true",
    style: "width:28px" }, line);
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e3) return `${+(value / 1e3).toPrecision(3)}k`;
  return `${+value.toPrecision(3)}`;
}

/** The name of a metric in words: effective rank for objective/effective_rank. */
const words = (name) => name.replace(/^.*\//, "").replaceAll("_", " ");

const isShare = (metric) => ["success", "share"].includes(metric);

/** A value, and its error with as many digits. */
function withError(value, error, metric) {
  const share = isShare(metric);
  if (!share && !["return", "c"].includes(metric)) return `${+value.toPrecision(4)}`;
  const size = Math.abs(value);
  const digits = size >= 1000 ? 0 : size >= 10 ? 1 : 3;
  const shown = (number) => (share ? `${(100 * number).toFixed(0)}%` : number.toFixed(digits));
  return shown(value) + (error === null || error === undefined ? "" : ` ± ${shown(error)}`);
}
