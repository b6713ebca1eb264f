// Makes elements, and writes figures and times. Text gets into the page by text nodes alone: the
// browser never reads what a model, a client or a server wrote as markup.

/** Make an element: `h("p", {class: "note"}, "text", child)`. */
export function h(tag, given, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined));
  return element;
}

/** Make a panel with a heading. `id`: of the heading. */
export function panel(id, title, ...body) {
  return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, title), ...body);
}

/** Set an element's text, unless it has that text already. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const WHOLE = new Intl.NumberFormat("en-US");

/** Write a number: 1,204; from a million on 1.23M. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["G", 1e9], ["M", 1e6]]) {
    if (value >= size) return (value / size).toPrecision(3) + unit;
  }
  return WHOLE.format(Math.round(value));
}

/** Write a number and its noun: `1 repair`, `2 repairs`. `many`: an irregular plural. */
export function counted(value, one, many = one + "s") {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Write a duration in its two largest units: 3 d 4 h; below 10 s in one: 4.2 s, 30 ms. */
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

/** Write a time (seconds since 1970): today's to the second, any other with its date. */
export function moment(seconds) {
  const at = new Date(seconds * 1000);
  const today = at.toDateString() === new Date().toDateString();
  return (today ? TIME : DAY).format(at);
}

/** Make a `<time>` that shows `moment(seconds)`, and the whole date in its tooltip. */
export function when(seconds) {
  const at = new Date(seconds * 1000);
  return h("time", { datetime: at.toISOString(), title: at.toLocaleString() }, moment(seconds));
}

/** Make a coloured pill with a word. `tone`: good, warn, bad, or "". */
export function pill(text, tone = "") {
  return h("span", { class: `pill ${tone}` }, text);
}
