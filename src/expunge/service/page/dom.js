// Elements, numbers and times. Text only ever becomes text nodes: nothing that the service says can become markup.

const SVG = "http://www.w3.org/2000/svg";

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(4).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

export const h = (name, attributes, ...children) => build(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) => build(document.createElementNS(SVG, name), attributes, children);

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(4).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

// Change a text only if it is another one, so that screen readers and animations are not disturbed.
export function write(element, text) {
  const said = String(text);
  if (element.textContent === said) return false;
  element.textContent = said;
  return true;
}

const counting = new Intl.NumberFormat("en");
export const count = (value) => (value === null || value === undefined ? "–" : counting.format(value));
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
export const percent = (value, digits = 1) =>
  value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)}%`;

export function short(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
  return counting.format(Number(value.toPrecision(digits)));
}

export function spell(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return "< 1 ms";
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 90) return `${Number(seconds.toPrecision(2))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Number((seconds / 3600).toPrecision(2))} h` : `${Math.round(seconds / 86400)} days`;
}

const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
export function ago(at, now = Date.now()) {
  if (!at) return "–";
  const seconds = (Date.parse(at) - now) / 1000; // what happened is dated by the next tick of a clock
  if (seconds > 0) return seconds < 600 ? "just now" : moment(at);
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]])
    if (Math.abs(seconds) >= size) return relative.format(Math.trunc(seconds / size), unit);
  return "just now";
}
export const moment = (at) =>
  at ? new Date(at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }) : "–";
// A moment of today by its time, and another by its day.
export function clock(at) {
  if (!at) return "–";
  const then = new Date(at);
  const isToday = then.toDateString() === new Date().toDateString();
  const shown = then.toLocaleString("en-GB", isToday ? { timeStyle: "short" } : { day: "numeric", month: "short", year: "numeric" });
  return h("time", { "data-at": at, title: moment(at) }, shown);
}
export const time = (at) => h("time", { datetime: at, title: moment(at) }, ago(at));

// Renew what "5 minutes ago" says, in place.
setInterval(() => {
  for (const each of document.querySelectorAll("time[datetime]")) write(each, ago(each.getAttribute("datetime")));
}, 15000);

export function say(text) {
  document.getElementById("say").textContent = "";
  requestAnimationFrame(() => (document.getElementById("say").textContent = text));
}

export function toast(text, kind = "good") {
  say(text);
  const made = h("p", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(made);
  setTimeout(() => made.remove(), 6000);
}

const PATHS = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
  add: "M12 5v14M5 12h14",
  requests: "M5 4h14v16l-3-2-2 2-2-2-2 2-2-2-3 2zM9 9h6M9 13h6",
  "what-if": "M4 19V5M4 19h16M7 15l4-5 3 3 5-7",
  audit: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5M8 11l2 2 4-4",
  inside: "M5 11h14v9H5zM8 11V8a4 4 0 0 1 8 0v3M12 15v2",
  lock: "M5 11h14v9H5zM8 11V8a4 4 0 0 1 8 0v3",
  check: "M5 13l4 4L19 7",
  wait: "M12 7v5l3 2M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  bad: "M12 8v5M12 16v.5M12 3l9.5 17h-19z",
  none: "M5 12h14",
  copy: "M9 9h10v11H9zM5 15V4h10",
};
export const icon = (name) =>
  svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));

// A card with a heading, and a place for what it shows.
export function card(title, { note = "", wide = false, tone = "" } = {}, ...children) {
  const body = h("div", { class: "card-body" }, children);
  const head = h("header", { class: "card-head" }, h("h2", null, title), note && h("p", { class: "note" }, note));
  return { root: h("section", { class: `card ${wide ? "wide" : ""} ${tone}` }, head, body), body, head };
}

export const empty = (title, text, ...more) =>
  h("div", { class: "empty" }, icon("none"), h("p", { class: "empty-title" }, title), h("p", null, text), more);

export const loading = (lines = 3) =>
  h(
    "div",
    { class: "loading" },
    h("span", { class: "unseen" }, "Loading"),
    Array.from({ length: lines }, () => h("span", { class: "bone", "aria-hidden": "true" })),
  );

export function failure(error, again) {
  return h(
    "div",
    { class: "failure", role: "alert" },
    icon("bad"),
    h("div", null, h("p", null, error.message), error.detail && h("p", { class: "note" }, error.detail)),
    again && h("button", { type: "button", class: "plain", onclick: again }, "Try again"),
  );
}

export function copyable(text, label, shown = text) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast(`${label} copied`);
    } catch {
      toast("The browser did not allow copying", "bad");
    }
  };
  return h(
    "span",
    { class: "copyable" },
    h("code", { title: text }, shown),
    h("button", { type: "button", class: "small", "aria-label": `Copy ${label}`, onclick: copy }, icon("copy")),
  );
}
