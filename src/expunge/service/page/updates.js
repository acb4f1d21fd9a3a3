// Requests as the service tells of them, for the overview and the page of requests.

import { ask } from "./api.js";
import { count, h, plural, time } from "./dom.js";

export async function list({ state = "", limit = 20, cursor = "", find = {} } = {}) {
  const asked = new URLSearchParams({ limit });
  if (state) asked.set("state", state);
  if (cursor) asked.set("cursor", cursor);
  for (const [name, value] of Object.entries(find)) asked.set(name, value);
  return ask(`/v1/updates?${asked}`);
}

export function what(update) {
  const parts = [
    [update.deletions, "delete", "record"],
    [update.corrections, "correct", "record"],
    [update.additions, "add", "record"],
  ].filter(([number]) => number > 0);
  if (!parts.length) return update.kind ?? "nothing";
  return parts.map(([number, verb, noun]) => `${verb} ${plural(number, noun)}`).join(", ");
}

export const badge = (state) => h("span", { class: `state ${state}` }, state);

export const row = (update) =>
  h(
    "li",
    null,
    badge(update.state),
    h("span", { class: "grow" }, what(update)),
    h("span", { class: "note" }, time(update.accepted_at)),
  );

export const inRound = (update) => (update.round === null || update.round === undefined ? "–" : count(update.round));
