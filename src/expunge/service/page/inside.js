// Inside: what must not leave the trust boundary. For the operator alone, and marked.

import { ask, poll } from "./api.js";
import { bars, chart, histogram, lines, numbers } from "./charts.js";
import { card, count, empty, failure, fill, h, icon, loading, percent, plural, short, spell, time } from "./dom.js";

const POLL_MILLISECONDS = 4000;
const MOST_BARS = 120;

export function mount(place, context) {
  const shown = h("div", { class: "grid inside" }, loading(6));
  fill(
    place,
    h("p", { class: "boundary" }, icon("lock"), h("span", null, "Operator only. Shown to a requester, what is on this page can void an (α,β,γ) promise.")),
    h("div", { class: "title" }, h("h1", { tabindex: "-1" }, "Inside"), h("p", null, "How the shards are doing, and what deletions cost.")),
    shown,
  );
  let told = "";
  const live = poll(async () => {
    try {
      const found = await ask("/v1/inside");
      const mark = JSON.stringify(found);
      if (mark === told) return;
      told = mark;
      draw(shown, found);
    } catch (error) {
      if (!told && error.status !== 401) fill(shown, failure(error, () => live.now()));
      throw error;
    }
  }, POLL_MILLISECONDS);
  return live.stop;
}

function draw(place, found) {
  // Open details stay open.
  const opened = new Set([...place.querySelectorAll("details[open] > summary")].map((each) => each.textContent));
  fill(place, saved(found).root, trainings(found).root, sizes(found).root, accuracy(found).root, found.replicas.length > 0 && replicas(found).root, found.alpha && alpha(found).root);
  for (const each of place.querySelectorAll("details > summary")) if (opened.has(each.textContent)) each.parentNode.open = true;
}

function saved(found) {
  const made = card("Work saved");
  if (!found.round) {
    fill(made.body, empty("No round yet", "After the first update this compares the models that were trained with all of them, every time."), books(found));
    return made;
  }
  const share = 1 - found.models_by_updates / found.models_if_everything;
  const bar = h("i");
  bar.style.width = percent(1 - Math.max(0, share));
  fill(
    made.body,
    h("p", { class: "headline" }, h("span", { class: "big" }, percent(Math.max(0, share), share > 0.99 && share < 1 ? 1 : 0)), h("span", { class: "unit" }, "of the trainings")),
    h("div", { class: "gauge", "aria-hidden": "true" }, bar),
    h("p", { class: "note" }, `${count(found.models_by_updates)} models were trained for ${plural(found.round, "round")} of updates. Retraining everything each time would have been ${count(found.models_if_everything)}.`),
    found.costs && h("p", { class: "note" }, `When this recipe was first trained: ${spell(found.costs.deletion)} of processor time for a deletion, ${found.costs.is_estimated ? "an estimated " : ""}${spell(found.costs.refit)} for one model on everything.`),
    books(found),
  );
  return made;
}

function trainings(found) {
  const made = card("Retraining times");
  const seen = found.rounds.slice(-60);
  if (!seen.length) {
    fill(made.body, empty("None seen yet", "Rounds that are put in service while this service runs appear here."));
    return made;
  }
  const seconds = seen.map((each) => each.seconds ?? 0);
  const last = seen.at(-1);
  fill(
    made.body,
    h("p", { class: "headline" }, h("span", { class: "big" }, spell(last.seconds)), h("span", { class: "unit" }, "for the last one"), h("span", { class: "note" }, `${plural(last.models, "model")} trained`)),
    chart(`Seconds of the last ${plural(seen.length, "retraining")}, from round ${seen[0].round} to ${last.round}`, 150, (width, height) => bars(seconds, { unit: spell, name: (at) => seen[at].round }, width, height)).root,
    h("p", { class: "note" }, "By round, on the clock."),
    numbers("All numbers", ["Round", "When", "Models", "Time"], [...found.rounds].reverse().map((each) => [count(each.round) + (each.everything ? " (all)" : ""), time(each.at), count(each.models), spell(each.seconds)])),
  );
  return made;
}

function replicas(found) {
  const made = card("Replicas");
  const late = found.replicas.filter((each) => each.round !== found.round).length;
  fill(
    made.body,
    h("p", { class: "headline" }, h("span", { class: "big" }, count(found.replicas.length)), h("span", { class: "unit" }, found.replicas.length === 1 ? "answers too" : "answer too"), h("span", { class: "note" }, late ? `${count(late)} not yet at round ${count(found.round)}` : `all at round ${count(found.round)}`)),
    numbers("All replicas", ["Process", "Round", "Lease"], found.replicas.map((each) => [String(each.process ?? "–"), each.round === null ? "–" : count(each.round), spell(each.lease)])),
  );
  return made;
}

function sizes(found) {
  const made = card("Shard sizes");
  const sorted = [...found.sizes].sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)];
  const odd = [found.empty && `${plural(found.empty, "shard")} empty`, found.failed > 0 && `${count(found.failed)} could not be trained`].filter(Boolean).join(", ");
  fill(
    made.body,
    h("p", { class: "headline" }, h("span", { class: "big" }, count(median)), h("span", { class: "unit" }, "records in the median shard"), h("span", { class: "note" }, `${count(sorted[0])} to ${count(sorted.at(-1))}${odd ? `; ${odd}` : ""}`)),
    distribution(found.sizes, "Records in each shard", count),
  );
  return made;
}

function distribution(values, label, unit) {
  const known = values.filter((each) => each !== null);
  if (values.length <= MOST_BARS) return chart(`${label}: ${known.length ? `${unit(Math.min(...known))} to ${unit(Math.max(...known))}` : "none"}`, 150, (width, height) => bars(values, { unit }, width, height)).root;
  const made = histogram(values);
  return chart(`${label}: how many shards have which`, 150, (width, height) => bars(made.counts, { unit: (value) => plural(value, "shard"), name: (at) => unit(made.from(at)) }, width, height)).root;
}

function accuracy(found) {
  const made = card("Each shard alone");
  const values = found.accuracy?.values.filter((each) => each !== null) ?? [];
  if (!values.length) {
    fill(made.body, empty("Nothing to compare", "With one shard no record is left that its model has not seen."));
    return made;
  }
  const mean = values.reduce((sum, each) => sum + each, 0) / values.length;
  const unit = found.accuracy.measure === "accuracy" ? (value) => percent(value) : (value) => short(value);
  const shown = found.accuracy.measure === "accuracy" ? found.accuracy.values : found.accuracy.values.map((each) => each && Math.max(0, each));
  fill(
    made.body,
    h("p", { class: "headline" }, h("span", { class: "big" }, unit(mean)), h("span", { class: "unit" }, `${found.accuracy.measure} on average`), h("span", { class: "note" }, `${unit(Math.min(...values))} to ${unit(Math.max(...values))}`)),
    distribution(shown, `${found.accuracy.measure} of each shard's model`, unit),
    h("p", { class: "note" }, `Each model alone, on up to ${plural(found.accuracy.rows, "record")} that it did not learn from. Together they answer better.`),
  );
  return made;
}

function books(found) {
  const spent = found.budget;
  const isExact = found.publishes === "exact";
  const rows = [
    ["Publishes as", found.publishes],
    ["Generation", count(found.generation)],
    !isExact && ["Predictions in it", `${count(spent.predictions)}${found.capacity === null ? "" : ` of ${count(found.capacity)}`}`],
    !isExact && ["The next update", found.must_retrain ? "retrains everything" : "retrains what it touches"],
    ["Models trained so far", count(found.models_trained)],
  ].filter(Boolean);
  return h("dl", { class: "rows" }, rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

function alpha(found) {
  const told = found.alpha;
  const made = card("α against predictions", { wide: true, note: `By each theorem, at β = ${short(told.beta)} and γ = ${short(told.gamma)}, for one generation.` });
  const series = told.curves.map((each) => ({ name: each.theorem, points: each.points }));
  fill(
    made.body,
    chart(`Alpha against the number of predictions in a generation; ${count(told.predictions)} were made, and ${count(told.capacity)} are allowed`, 300, (width, height) => lines({ series, mark: told.predictions, markName: "now", limit: told.capacity, limitName: "allowed", below: "predictions in a generation", beside: "α (less is better)" }, width, height)).root,
    h("p", { class: "key" }, series.map((each, at) => [h("span", { class: `swatch series-${at % 5}` }), each.name])),
  );
  return made;
}
