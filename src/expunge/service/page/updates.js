// Requests as the service tells of them, for the overview and the page of requests.

import { ask } from "./api.js";
import { count, h, plural, time } from "./dom.js";

export async function list({ state = "", limit = 20, after = "" } = {}) {
  const asked = new URLSearchParams({ limit, order: "newest" });
  if (state) asked.set("state", state);
  if (after) asked.set("after", after);
  return ask(`/v1/updates?${asked}`);
}

// The requests that name a record, or deleted a subject. The names travel in the body, so that no log of addresses has them.
export async function about(kind, body, state) {
  const { updates } = await ask("/v1/updates/find", { method: "POST", body: `{"${kind}":[${body}]}` });
  return { updates: state ? updates.filter((each) => each.state === state) : updates, next: null };
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
