// Overview: the promise in one sentence, and the state of everything, live.

import { ask } from "./api.js";
import { chart, traffic } from "./charts.js";
import { card, copyable, count, failure, fill, h, icon, plural, short, time, write } from "./dom.js";
import { list, row } from "./updates.js";

const RATE_SECONDS = 10;

export function mount(place, context) {
  const hero = h("section", { class: "hero", "aria-label": "The promise" });
  const tiles = h("dl", { class: "tiles" });
  const seen = card("Predictions");
  const evidence = card("Evidence");
  const latest = card("Latest requests");
  const isPlain = context.role === "predict";
  fill(
    place,
    h("h1", { tabindex: "-1", class: "unseen" }, "Overview"),
    hero,
    tiles,
    h("div", { class: "grid" }, seen.root, !isPlain && evidence.root, !isPlain && latest.root),
  );
  const stops = [
    context.follow(promise(hero, context)),
    context.follow(figures(tiles)),
    context.follow(predictions(seen.body)),
    !isPlain && context.follow(proofs(evidence.body, context)),
    !isPlain && context.follow(recent(latest.body)),
  ];
  return () => stops.forEach((each) => each && each());
}

function promise(place, context) {
  let told = null;
  return async (state) => {
    if (told === state.round) return;
    told = state.round;
    try {
      const found = await ask("/v1/promise");
      const [exact, other] = found.statements;
      const claimed = [exact, other].filter((each) => each.claimed);
      const sentence = exact.claimed
        ? exact.in_short.slice(0, 2).join(" ")
        : "The exact promise is not claimed at this moment.";
      fill(
        place,
        h(
          "p",
          { class: "eyebrow" },
          icon(claimed.length ? "check" : "bad"),
          claimed.length ? "In force: " : "Not in force",
          claimed.map((each) => h("span", { class: "tag" }, each.name === "exact" ? "exact deletion" : each.name)),
          !state.guarded && h("span", { class: "tag bad" }, "nothing guards what is published"),
        ),
        h("p", { class: "sentence" }, sentence),
        other.claimed && h("p", { class: "sentence second" }, other.statement),
        h(
          "details",
          null,
          h("summary", null, "What it compares with, and what it does not say"),
          h("div", { class: "statements" }, found.statements.map(statement)),
        ),
      );
    } catch (error) {
      told = null;
      if (!place.firstChild) fill(place, failure(error, context.refresh));
    }
  };
}

const statement = (each) =>
  h(
    "section",
    { class: each.claimed ? "claimed" : "" },
    h("h3", null, each.name === "exact" ? "The exact promise" : "The (α,β,γ) promise", h("span", { class: "tag" }, each.claimed ? "claimed" : "not claimed")),
    h("p", null, each.claimed ? each.statement : `Not claimed, because ${each.reason}.`),
    h("p", { class: "note" }, `Compared with: ${each.compares_with}.`),
    each.limits && h("p", { class: "note" }, each.limits),
  );

function figures(place) {
  const names = { records: "Records", shards: "Shards", round: "Round", pending: "Pending", applied: "Applied" };
  const values = {};
  const tiles = Object.entries(names).map(([name, title]) => {
    values[name] = h("dd", null, "–");
    return h("div", { class: `tile tile-${name}` }, h("dt", null, title), values[name]);
  });
  fill(place, tiles);
  let first = true;
  return (state) => {
    const found = { ...state, applied: state.requests?.applied };
    tiles.at(-1).hidden = !state.requests;
    for (const name of Object.keys(names)) {
      if (write(values[name], count(found[name])) && !first) {
        values[name].classList.remove("changed");
        void values[name].offsetWidth; // starts the animation anew
        values[name].classList.add("changed");
      }
    }
    first = false;
  };
}

function predictions(place) {
  let rows = [];
  const number = h("span", { class: "big" }, "0");
  const total = h("span", { class: "note" }, "");
  const drawn = chart(
    () => `Predictions a second over the last five minutes; now ${number.textContent}`,
    150,
    (width, height) => traffic(rows, width, height),
  );
  fill(place, h("p", { class: "headline" }, number, h("span", { class: "unit" }, "a second"), total), drawn.root);
  return (state) => {
    rows = state.traffic.rows;
    const recent = rows.slice(-RATE_SECONDS).reduce((sum, each) => sum + each, 0) / RATE_SECONDS;
    const sum = rows.reduce((all, each) => all + each, 0);
    write(number, short(recent));
    write(total, sum ? `${plural(sum, "row")} in five minutes` : "none in the last five minutes");
    drawn.redraw();
  };
}

function proofs(place, context) {
  let told = "";
  const fact = (kind, title, ...content) =>
    h("li", { class: `fact ${kind}` }, icon(kind === "good" ? "check" : kind === "bad" ? "bad" : "none"), h("div", null, h("h3", null, title), content));
  const more = (text) => ["auditor", "operator"].includes(context.role) && h("p", null, h("a", { href: "#/audit" }, text));
  return (state) => {
    const mark = JSON.stringify([state.recomputation, state.log]);
    if (mark === told) return;
    told = mark;
    const { recomputation: last, log } = state;
    fill(
      place,
      h(
        "ul",
        { class: "facts" },
        last
          ? fact(
              last.agrees ? "good" : "bad",
              "Last recomputation",
              h(
                "p",
                null,
                last.agrees ? "Every model that was checked is what the recipe gives, bit for bit. " : "Models in service are not what the recipe gives. ",
                `${count(last.checked)} of ${plural(state.shards, "shard")}, round ${count(last.round)}, `,
                time(last.at),
                ".",
              ),
            )
          : fact("none", "Last recomputation", h("p", null, "None is in the log yet."), more("Recompute now")),
        fact(
          "good",
          "Log",
          h("p", null, `${plural(log.size, "entry").replace("entrys", "entries")}; its head is `, copyable(log.root, "the head of the log", `${log.root.slice(0, 16)}…`)),
        ),
        log.cosigned
          ? fact(
              "good",
              "Witness",
              log.cosigned.by.map((each) =>
                h("p", null, h("strong", null, each.name), ` cosigned ${plural(log.cosigned.size, "entry").replace("entrys", "entries")} `, time(each.at), "."),
              ),
            )
          : fact(
              "none",
              "Witness",
              h("p", null, "No witness has cosigned this log. A witness makes a second history visible: ", h("code", null, "expunge witness"), "."),
            ),
      ),
    );
  };
}

function recent(place) {
  let told = -1;
  return async (state) => {
    if (told === state.log.size) return;
    told = state.log.size;
    try {
      const { updates } = await list({ limit: 5 });
      if (!updates.length) {
        fill(place, h("p", { class: "note" }, "No request has been made yet."));
        return;
      }
      fill(place, h("ul", { class: "short-list" }, updates.map(row)), h("p", null, h("a", { href: "#/requests" }, "All requests")));
    } catch (error) {
      told = -1;
      if (!place.firstChild) fill(place, failure(error));
    }
  };
}
