// Elements and figures. Text gets into the page by text nodes alone: what a model, a client or a
// server wrote is never read as markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, given, children) {
  for (const [name, value] of Object.entries(given ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined));
  return element;
}

/** An element: `h("p", {class: "note"}, "text", child)`. */
export function h(tag, given, ...children) {
  return filled(document.createElement(tag), given, children);
}

/** The same for drawings. */
export function svg(tag, given, ...children) {
  return filled(document.createElementNS(SVG, tag), given, children);
}

/** Put text into an element, and touch it only if it is another. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const WHOLE = new Intl.NumberFormat("en-US");

/** 1,204; from a million on 1.23M. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["G", 1e9], ["M", 1e6]]) {
    if (value >= size) return (value / size).toPrecision(3) + unit;
  }
  return WHOLE.format(Math.round(value));
}

/** `1 repair`, `2 repairs`, `2 replies`. */
export function counted(value, one, many = one + "s") {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** The two largest units of seconds: 3 d 4 h. */
export function span(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  let left = Math.round(seconds);
  const parts = [];
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    if (left >= size) {
      parts.push(`${Math.floor(left / size)} ${unit}`);
      left %= size;
    }
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}

const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const TIME = new Intl.DateTimeFormat(undefined, { ...CLOCK, second: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { ...CLOCK, day: "numeric", month: "short" });

/** The time of day, to the second; of another day, the date and the minute. */
export function moment(seconds) {
  const at = new Date(seconds * 1000);
  const today = at.toDateString() === new Date().toDateString();
  return (today ? TIME : DAY).format(at);
}

/** A `<time>` that shows the moment, and the whole date to who points at it. */
export function when(seconds) {
  const at = new Date(seconds * 1000);
  return h("time", { datetime: at.toISOString(), title: at.toLocaleString() }, moment(seconds));
}

/** A word in a coloured pill. `tone`: good, warn, bad, or none. */
export function pill(text, tone = "") {
  return h("span", { class: `pill ${tone}` }, text);
}
