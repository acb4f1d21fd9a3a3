// Drawings as SVG. Colours come from the style sheet, so they follow light, dark and print. Each drawing has a name for
// screen readers, and most have a table beside them.

import { count, h, percent, short, spell, svg } from "./dom.js";

// A place that draws itself anew when its width changes, so that letters keep their size.
export function chart(label, height, draw) {
  const place = h("div", { class: "chart" });
  let width = 0;
  const redraw = () => {
    if (width < 40) return;
    const parts = draw(width, height);
    place.replaceChildren(
      svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": said() }, parts),
    );
  };
  const said = () => (typeof label === "function" ? label() : label);
  new ResizeObserver(([entry]) => {
    const found = Math.floor(entry.contentRect.width);
    if (found === width) return;
    width = found;
    redraw();
  }).observe(place);
  return { root: place, redraw };
}

const line = (x1, y1, x2, y2, css) => svg("line", { x1, y1, x2, y2, class: css });
const words = (x, y, text, css = "", anchor = "start") =>
  svg("text", { x, y, class: css, "text-anchor": anchor }, String(text));

export function ticks(low, high, most = 5) {
  const span = high - low || Math.abs(high) || 1;
  let step = 10 ** Math.floor(Math.log10(span / most));
  step *= [1, 2, 5, 10].find((each) => span / (each * step) <= most);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + span * 1e-9; at += 1) found.push(Number((at * step).toPrecision(12)));
  return found;
}

const linear = (low, high, from, to) => (value) => from + ((to - from) * (value - low)) / (high - low || 1);
function logarithmic(low, high, from, to) {
  const scale = linear(Math.log10(low), Math.log10(high), from, to);
  return (value) => scale(Math.log10(Math.max(value, low)));
}
// Round numbers on a log scale: powers of ten, with 2 and 5 between them where there is room.
export function decades(low, high, most = 6) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const fits = (factors, step) => {
    const found = [];
    for (let power = first; power <= last; power += step)
      for (const factor of factors) found.push(Number((factor * 10 ** power).toPrecision(6)));
    return found.filter((each) => each >= low * (1 - 1e-9) && each <= high * (1 + 1e-9));
  };
  for (const [factors, step] of [[[1, 2, 5], 1], [[1, 3], 1], [[1], 1], [[1], 2], [[1], 3], [[1], 4]])
    if (fits(factors, step).length <= most) return fits(factors, step);
  return fits([1], 6);
}

// Traffic: the rows of every second, oldest first, smoothed a little for the eye.
export function traffic(rows, width, height) {
  const calm = rows.map((_, at) => {
    const near = rows.slice(Math.max(0, at - 2), at + 3);
    return near.reduce((sum, each) => sum + each, 0) / near.length;
  });
  const top = Math.max(1, ...calm);
  const [left, right, ceiling, floor] = [0, width, 22, height - 20];
  const x = linear(0, rows.length - 1, left, right);
  const y = linear(0, top * 1.05, floor, ceiling);
  const path = calm.map((value, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return [
    line(left, y(top), right, y(top), "grid"),
    words(left, y(top) - 6, `${short(top)} a second`, "soft"),
    svg("path", { d: `${path}L${right} ${floor}L${left} ${floor}Z`, class: "area" }),
    svg("path", { d: path, class: "stroke" }),
    line(left, floor, right, floor, "axis"),
    words(left, height - 4, "5 minutes ago", "soft"),
    words(right, height - 4, "now", "soft", "end"),
  ];
}

// Work against quality: points with intervals, a log scale below. `chosen` and `present` are numbers of shards.
export function pareto({ points, chosen, present, baseline, measure, pick }, width, height) {
  const [left, right, ceiling, floor] = [46, width - 12, 26, height - 44];
  const floorValue = 1e-4;
  const work = points.map((each) => Math.max(each.day, floorValue));
  const low = Math.min(...work) / 1.8;
  const high = Math.max(...work) * 1.8;
  const values = points.flatMap((each) => [each.low, each.high]);
  const margin = 0.08 * (Math.max(...values) - Math.min(...values) || 0.1);
  const bottom = Math.min(...values, baseline > Math.min(...values) - 0.1 ? baseline : Infinity) - margin;
  const x = logarithmic(low, high, left, right);
  const y = linear(bottom, Math.max(...values) + margin, floor, ceiling);
  const shown = measure === "accuracy" ? (value) => percent(value, 0) : (value) => short(value, 2);
  const frontier = paretoFront(points, floorValue);
  const path = frontier.map((each, at) => `${at ? "L" : "M"}${x(Math.max(each.day, floorValue)).toFixed(1)} ${y(each.value).toFixed(1)}`);
  return [
    ...ticks(bottom, Math.max(...values) + margin, 5).flatMap((value) => [
      line(left, y(value), right, y(value), "grid"),
      words(left - 8, y(value) + 4, shown(value), "soft", "end"),
    ]),
    ...decades(low, high, Math.max(2, Math.floor(width / 110))).flatMap((value) => [
      line(x(value), floor, x(value), floor + 5, "axis"),
      words(x(value), floor + 20, spell(value), "soft", "middle"),
    ]),
    line(left, floor, right, floor, "axis"),
    words((left + right) / 2, height - 6, "processor time a day (less is better)", "soft", "middle"),
    words(left, 14, `${measure}, with 95% intervals`, "soft"),
    baseline >= bottom && line(left, y(baseline), right, y(baseline), "dashed"),
    path.length > 1 && svg("path", { d: path.join(""), class: "front" }),
    ...points.map((each, place) => {
      const at = x(Math.max(each.day, floorValue));
      // The name goes below where that of another point would be in its way.
      const isNear = points.slice(0, place).some((other) => Math.abs(x(Math.max(other.day, floorValue)) - at) < 30 && Math.abs(y(other.high) - y(each.high)) < 16);
      const css = `point ${each.shards === chosen ? "chosen" : ""} ${each.shards === present ? "present" : ""}`;
      return svg(
        "g",
        { class: css, onclick: () => pick?.(each.shards) },
        line(at, y(each.low), at, y(each.high), "whisker"),
        each.shards === present && svg("circle", { cx: at, cy: y(each.value), r: 11, class: "ring" }),
        svg("circle", { cx: at, cy: y(each.value), r: each.shards === chosen ? 7.5 : 5.5 }),
        words(at, isNear ? y(each.low) + 16 : y(each.high) - 7, each.shards === 1 ? "k = 1" : count(each.shards), "name", "middle"),
      );
    }),
  ];
}

function paretoFront(points, least) {
  const sorted = [...points].sort((a, b) => Math.max(a.day, least) - Math.max(b.day, least) || b.value - a.value);
  const front = [];
  for (const each of sorted) if (!front.length || each.value > front.at(-1).value) front.push(each);
  return front;
}

// Lines on log scales: [{name, points: [[x, y], …]}, …].
export function lines({ series, mark, markName, limit, limitName, below, beside }, width, height) {
  const [left, right, ceiling, floor] = [46, width - 14, 26, height - 44];
  const all = series.flatMap((each) => each.points);
  const xs = [...all.map((each) => each[0]), limit ?? 1, mark || 1];
  const ys = all.map((each) => each[1]);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs) * 1.1];
  const [y0, y1] = [Math.min(...ys) / 1.3, Math.max(...ys) * 1.3];
  const x = logarithmic(x0, x1, left, right);
  const y = logarithmic(y0, y1, floor, ceiling);
  return [
    ...decades(y0, y1).flatMap((value) => [
      line(left, y(value), right, y(value), "grid"),
      words(left - 8, y(value) + 4, short(value), "soft", "end"),
    ]),
    ...decades(x0, x1, Math.max(2, Math.floor(width / 90))).flatMap((value) => [
      line(x(value), floor, x(value), floor + 5, "axis"),
      words(x(value), floor + 20, short(value), "soft", "middle"),
    ]),
    line(left, floor, right, floor, "axis"),
    words((left + right) / 2, height - 6, below, "soft", "middle"),
    words(left, 14, beside, "soft"),
    limit && [line(x(limit), ceiling, x(limit), floor, "dashed"), words(x(limit) - 5, ceiling + 12, limitName, "soft", "end")],
    mark > 0 && [line(x(mark), ceiling, x(mark), floor, "mark"), words(x(mark) + 5, floor - 8, markName, "name")],
    ...series.map((each, at) =>
      svg("path", {
        d: each.points.map(([a, b], place) => `${place ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join(""),
        class: `series series-${at % 5}`,
      }),
    ),
  ];
}

// Estimates with intervals between 0 and 1.
export function intervals(rows, width) {
  const [left, right, step] = [8, width - 8, 44];
  const floor = rows.length * step + 8;
  const x = linear(0, 1, left, right);
  return [
    ...[0, 0.25, 0.5, 0.75, 1].flatMap((value) => [
      line(x(value), 4, x(value), floor, "grid"),
      words(x(value), floor + 16, value, "soft", value === 0 ? "start" : value === 1 ? "end" : "middle"),
    ]),
    ...rows.flatMap(({ name, css, low, value, high }, at) => {
      const y = at * step + 32;
      return [
        words(left, y - 12, width < 380 ? `${name}: ${short(value)}` : `${name}: ${short(value)} (${short(low)} to ${short(high)})`, "name"),
        line(x(low), y, x(high), y, `range ${css}`),
        line(x(low), y - 5, x(low), y + 5, `range ${css}`),
        line(x(high), y - 5, x(high), y + 5, `range ${css}`),
        svg("circle", { cx: x(value), cy: y, r: 5.5, class: `dot ${css}` }),
      ];
    }),
  ];
}
export const intervalsHeight = (rows) => rows * 44 + 30;

// One bar for each value, or, where there are more than fit, how many values fall into each of some ranges.
export function bars(values, { unit = count, name = (at) => at, labels = true } = {}, width, height) {
  const [left, right, ceiling, floor] = [0, width, 24, height - 22];
  const top = Math.max(...values, 1e-12);
  const y = linear(0, top, floor, ceiling);
  const slot = (right - left) / values.length;
  const wide = Math.max(1, Math.min(slot - (slot > 4 ? 3 : 0), 48));
  const every = Math.ceil(values.length / Math.max(1, Math.floor(width / 46)));
  return [
    line(left, y(top), right, y(top), "grid"),
    words(left, y(top) - 7, unit(top), "soft"),
    ...values.map((value, at) => {
      const x = left + slot * at + (slot - wide) / 2;
      const tall = value === null ? 0 : Math.max(value > 0 ? 1.5 : 0, floor - y(value));
      return svg(
        "rect",
        { x: x.toFixed(1), y: (floor - tall).toFixed(1), width: wide.toFixed(1), height: tall.toFixed(1), rx: Math.min(3, wide / 4), class: "bar" },
        svg("title", null, `${name(at)}: ${unit(value)}`),
      );
    }),
    line(left, floor, right, floor, "axis"),
    labels &&
      values.map((_, at) => at % every === 0 && words(left + slot * (at + 0.5), height - 5, name(at), "soft", "middle")),
  ];
}

export function histogram(values, bins = 24) {
  const known = values.filter((each) => each !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const width = (high - low) / bins || 1;
  const counts = Array(bins).fill(0);
  for (const each of known) counts[Math.min(bins - 1, Math.floor((each - low) / width))] += 1;
  return { counts, from: (at) => low + at * width, to: (at) => low + (at + 1) * width };
}

// The same as a table, for those who want the numbers.
export function numbers(title, columns, rows) {
  return h(
    "details",
    { class: "numbers" },
    h("summary", null, title),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      h(
        "table",
        null,
        h("thead", null, h("tr", null, columns.map((each) => h("th", { scope: "col" }, each)))),
        h("tbody", null, rows.map((row) => h("tr", null, row.map((each) => h("td", null, each))))),
      ),
    ),
  );
}
