// What if: other numbers of shards, other promises, other traffic. Measured and rehearsed on the deployment's records
// where the operator asked for it, and computed from public numbers otherwise.

import { ask } from "./api.js";
import { chart, decades, numbers, pareto } from "./charts.js";
import { card, count, empty, failure, fill, h, icon, loading, percent, plural, say, short, spell, svg, time, write } from "./dom.js";

const SHARDS = [1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 10000];
const DAILY = [0.1, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000];
const COPIES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
const ASKED = [10, 100, 1000, 10000, 100000, 1000000, 10000000];
const ALPHAS = [0.5, 1, 2, 3, 4, 5, 6, 8, 10];
const POLL_MILLISECONDS = 1000;

export function mount(place, context) {
  const start = context.state;
  const chosen = { promise: "exact", shards: start.shards, copies: 1, deletions: 10, batches: 24, predictions: 1000, alpha: 5 };
  const shown = h("div", { class: "stack answer" });
  const views = { exact: measured(shown, chosen, context), target: planned(shown, chosen, context) };
  let view = null;

  const sliders = {
    shards: slider("Shards (k)", chosen.shards, withOwn(SHARDS, start.shards), (value) => count(value), (value) => set({ shards: value })),
    copies: slider("Copies of a record", 1, COPIES, (value) => short(value), (value) => set({ copies: value })),
    deletions: slider("Deletions a day", chosen.deletions, DAILY, count, (value) => set({ deletions: value })),
    batches: slider("Applied", chosen.batches, [1, 4, 24, 96, 1440, 100000], (value) => (value === 100000 ? "each at once" : value === 1 ? "once a day" : `${count(value)} times a day`), (value) => set({ batches: value })),
    predictions: slider("Questions a day", chosen.predictions, ASKED, count, (value) => set({ predictions: value })),
    alpha: slider("Target α", chosen.alpha, ALPHAS, (value) => String(value), (value) => set({ alpha: value })),
  };
  const promises = h(
    "fieldset",
    { class: "segments" },
    h("legend", null, "Promise"),
    [["exact", "exact"], ["target", "exact and (α,β,γ)"]].map(([name, title]) =>
      h("label", null, h("input", { type: "radio", name: "promise", value: name, checked: name === "exact", onchange: () => choose(name) }), h("span", null, title)),
    ),
  );
  const controls = card("What if");
  fill(controls.body, h("div", { class: "stack" }, promises, Object.values(sliders).map((each) => each.root)));
  fill(
    place,
    h("div", { class: "title" }, h("h1", { tabindex: "-1" }, "What if"), h("p", null, "What other shards, another promise or other traffic would cost and give. Nothing here changes the deployment.")),
    h("div", { class: "grid aside" }, controls.root, shown),
  );

  let later = null;
  function set(change) {
    Object.assign(chosen, change);
    clearTimeout(later);
    later = setTimeout(() => view.update(), 120);
  }
  function choose(name) {
    chosen.promise = name;
    for (const each of ["predictions", "alpha", "copies"]) sliders[each].root.hidden = name === "exact";
    view?.stop();
    view = views[name];
    view.open((change) => {
      Object.assign(chosen, change);
      for (const [each, value] of Object.entries(change)) sliders[each].set(value);
    });
  }
  choose("exact");
  return () => (clearTimeout(later), view.stop());
}

const withOwn = (values, own) => [...new Set([...values, own])].sort((a, b) => a - b);

// A slider over fixed steps, which says its value in words. A value that it is set to becomes a step.
function slider(title, value, fixed, words, changed) {
  const id = `slider-${title.replace(/\W+/g, "-").toLowerCase()}`;
  const said = h("output", { for: id });
  let steps = fixed;
  const input = h("input", { type: "range", id, min: 0, step: 1, oninput: () => (tell(), changed(steps[input.value])) });
  const tell = () => {
    write(said, words(steps[input.value]));
    input.setAttribute("aria-valuetext", words(steps[input.value]));
  };
  const set = (wanted) => {
    const near = fixed.find((each) => Math.abs(Math.log(each / wanted)) < 0.02);
    steps = near === undefined ? withOwn(fixed, wanted) : fixed;
    input.max = steps.length - 1;
    input.value = steps.indexOf(near ?? wanted);
    tell();
  };
  set(value);
  return { root: h("div", { class: "slider" }, h("label", { for: id }, title), said, input), set };
}

// What was measured on the deployment's records, and how far the work is: asked for again until it is done.
function measurements(place, chosen, draw) {
  let timer = null;
  let isOpen = false;
  let turn = 0;

  async function look() {
    clearTimeout(timer);
    turn += 1;
    const mine = turn;
    try {
      const found = await ask(`/v1/measurements?deletions_per_day=${chosen.deletions}&batches_per_day=${chosen.batches}&predictions_per_day=${chosen.predictions}`);
      if (!isOpen || mine !== turn) return;
      draw(found);
      if (found.job?.state === "running") timer = setTimeout(look, POLL_MILLISECONDS);
    } catch (error) {
      if (isOpen && mine === turn) fill(place, failure(error, look));
    }
  }
  return {
    look,
    async begin(data) {
      try {
        await ask("/v1/measurements", { method: "POST", data });
        say("The measurement has begun");
        look();
      } catch (error) {
        fill(place, failure(error, look));
      }
    },
    async end(job) {
      try {
        await ask(`/v1/measurements/${job.id}`, { method: "DELETE" });
        look();
      } catch (error) {
        fill(place, failure(error, look));
      }
    },
    open() {
      isOpen = true;
      fill(place, loading(5));
      look();
    },
    stop() {
      isOpen = false;
      turn += 1;
      clearTimeout(timer);
    },
  };
}

// The state of the work for one promise: running (for either), or failed.
const standing = (job, promise, end, again) =>
  job?.state === "running" ? progress(job, () => end(job)) : job?.state === "failed" && job.options.promise === promise ? failure({ message: `${promise === "exact" ? "The measurement" : "The rehearsal"} failed: ${job.error}.` }, again) : null;

const buttons = (title, begin) =>
  h("div", { class: "row" }, h("button", { type: "button", class: "primary", onclick: () => begin(30) }, `${title} (30 s)`), h("button", { type: "button", class: "plain", onclick: () => begin(120) }, "More exactly (2 min)"));

// The exact promise: accuracy against work, measured on the deployment's records with throw-away models.
function measured(place, chosen, context) {
  const mayMeasure = context.role === "operator";
  let move = null;
  let last = null;
  const { look, begin: start, end, open, stop } = measurements(place, chosen, (found) => ((last = found), draw()));
  const begin = (seconds) => start({ seconds });

  function draw() {
    const { job, measured: found } = last;
    const parts = [standing(job, "exact", end, () => begin(30))];
    if (found) parts.push(result(found));
    else if (job?.state !== "running")
      parts.push(
        card("Not measured yet", {}, empty("Nothing was measured yet", "Throw-away models are trained on this deployment's records, with 1, 2, 5, … shards: how good are the answers, and what does a deletion cost? It runs beside the service and gives way to it.", buttons("Measure now", begin))).root,
      );
    fill(place, parts);
  }

  function result(found) {
    const points = found.candidates;
    const near = points.reduce((best, each) => (Math.abs(Math.log(each.shards / chosen.shards)) < Math.abs(Math.log(best.shards / chosen.shards)) ? each : best));
    const own = points.find((each) => each.shards === context.state.shards);
    const isOld = found.round !== context.state.round;
    const { root, body } = card("Accuracy against work", { note: `Measured ${plural(found.tested, "record")} held out of ${count(found.records)}, in round ${count(found.round)}${isOld ? `; the deployment is in round ${count(context.state.round)} now` : ""}.` });
    const pick = (shards) => (move({ shards }), draw());
    const label = `Accuracy against processor time a day, for ${points.map((each) => each.shards).join(", ")} shards; the table below has the numbers`;
    fill(
      body,
      h("p", { class: "verdict" }, found.words),
      chart(label, 320, (width, height) => pareto({ points, chosen: near.shards, present: context.state.shards, baseline: found.baseline, measure: found.measure, pick }, width, height)).root,
      h("p", { class: "key" }, h("span", { class: "swatch chosen" }), "chosen", h("span", { class: "swatch present" }), "this deployment", h("span", { class: "swatch front" }), "nothing is better at less work"),
      facts(near, own, found),
      found.skipped.map((each) => h("p", { class: "note" }, `Not measured: ${each}.`)),
      numbers("All numbers", ["Shards", found.measure, "95% interval", "A deletion", "A day", "Training all"], points.map((each) => [count(each.shards), short(each.value), `${short(each.low)} to ${short(each.high)}`, spell(each.deletion), spell(each.day), spell(each.training)])),
      last.job.state !== "running" && buttons("Measure again", begin),
    );
    return root;
  }

  function facts(near, own, found) {
    const value = (each) => (found.measure === "accuracy" ? percent(each.value) : short(each.value));
    const gap = near.against_one;
    const times = near.day > 0 ? (own?.day ?? 0) / near.day : 0;
    return h(
      "dl",
      { class: "facts-line" },
      [
        [near.shards === 1 ? "One model" : plural(near.shards, "shard"), value(near), found.measure],
        ["Against one model", gap ? `${gap[0] >= 0 ? "+" : "−"}${Math.abs(100 * gap[0]).toFixed(1)}` : "–", gap ? `points (${(100 * gap[1]).toFixed(1)} to ${(100 * gap[2]).toFixed(1)})` : "not measured"],
        ["A deletion", spell(near.deletion), "of processor time"],
        [`${count(chosen.deletions)} a day`, spell(near.day), own && near.shards !== own.shards && times > 0 ? (times >= 1 ? `${short(times, 2)} times less than now` : `${short(1 / times, 2)} times more than now`) : "of processor time"],
      ].map(([title, number, unit]) => h("div", null, h("dt", null, title), h("dd", null, number, h("span", { class: "note" }, unit)))),
    );
  }

  return {
    open(mover) {
      move = mover;
      if (mayMeasure) open();
      else fill(place, card("Measured on the records", {}, empty("For the operator", "Accuracy against work is measured on people's records, so it is shown to the operator alone. With the promise “exact and (α,β,γ)” you see what is computed from public numbers.")).root);
    },
    update: () => mayMeasure && look(),
    stop,
  };
}

export function progress(job, stop) {
  const share = job.total ? Math.min(1, job.done / job.total) : null;
  return h(
    "div",
    { class: "progress" },
    h("p", null, `${job.what[0].toUpperCase()}${job.what.slice(1)}`, job.total ? ` ${count(Math.min(job.done, job.total))} of ${count(job.total)}` : ""),
    h("progress", { max: 1, value: share === null ? null : String(share), "aria-label": job.what }),
    stop && h("button", { type: "button", class: "plain", onclick: stop }, "Stop"),
  );
}

// Consensus, rehearsed: how well throw-away shards agree about records that they did not learn from.
function rehearsed(place, chosen, context) {
  const mayMeasure = context.role === "operator";
  const { look, begin: start, end, open, stop } = measurements(place, chosen, draw);
  const wished = () => ({ shards: chosen.shards, copies: Math.min(chosen.copies, chosen.shards), alpha: chosen.alpha });
  const begin = (seconds) => start({ seconds, promise: "consensus", ...wished() });

  function draw({ job, rehearsed: found }) {
    const parts = [standing(job, "consensus", end, () => begin(30))];
    if (found) parts.push(result(found, job));
    else if (job?.state !== "running")
      parts.push(
        card("Consensus on the records", {}, empty("Consensus was not rehearsed yet", "Throw-away shards are trained on this deployment's records, by the sliders, and vote on records that they did not learn from: do they agree often enough, how long would a generation last, and what would it cost? It runs beside the service and gives way to it.", chosen.shards > 1 ? buttons("Rehearse now", begin) : h("p", { class: "note" }, "One shard cannot vote: choose more."))).root,
      );
    fill(place, parts);
  }

  function result(found, job) {
    const isOld = found.round !== context.state.round;
    const now = wished();
    const isOther = found.shards !== now.shards || Math.abs(found.copies / now.copies - 1) > 0.01 || found.alpha !== now.alpha;
    const [verdict, ...why] = found.words;
    const settings = (each) => `${plural(each.shards, "shard")}, each record in about ${short(each.copies)} of them, and α = ${short(each.alpha)}`;
    const score = ([value, low, high]) => `${percent(value)} (${percent(low)} to ${percent(high)})`;
    const rows = [
      ["Accuracy, with 95% interval", score(found.accuracy), score(found.one_accuracy)],
      ["A deletion while the generation is clean", spell(found.deletion), spell(found.one_refit)],
      ["Training everything", spell(found.training), spell(found.one_refit)],
      ["Work a day", spell(found.day), spell(found.one_day)],
    ];
    const facts = [
      ["Shards agree", percent(found.agreement), "of the votes behind an answer, on average"],
      ["Wanted", percent(found.needed), "of the votes, so that an answer is surely free"],
      ["Surely free", percent(found.sure), "of the held-out records"],
      ["A generation", count(found.predictions === null ? null : Math.round(found.predictions)), found.predictions === null ? "nothing is promised" : `predictions, ${spell(found.generation_days * 86400)} at this traffic`],
    ];
    const { root, body } = card("Consensus, rehearsed on the records", { note: `${settings(found)}, asked about ${plural(found.tested, "held-out record")} in round ${count(found.round)}${isOld ? `; the deployment is in round ${count(context.state.round)} now` : ""}.` });
    fill(
      body,
      h("p", { class: "verdict" }, verdict),
      why.map((each) => h("p", null, each)),
      h("dl", { class: "facts-line" }, facts.map(([title, number, unit]) => h("div", null, h("dt", null, title), h("dd", null, number, h("span", { class: "note" }, unit))))),
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Consensus against one model" },
        h(
          "table",
          { class: "rehearsal" },
          h("thead", null, h("tr", null, ["", "By consensus", "One model"].map((each) => (each ? h("th", { scope: "col" }, each) : h("td"))))),
          h("tbody", null, rows.map(([name, ...values]) => h("tr", null, h("th", { scope: "row" }, name), values.map((each) => h("td", null, each))))),
        ),
      ),
      h("p", { class: "note" }, "Times are processor time. The shards were thrown away, and drawn with public coins: this says nothing about the deployment's key.", found.models < found.shards && ` For lack of time ${count(found.models)} of ${count(found.shards)} shards voted.`),
      isOther && h("p", { class: "remark" }, icon("wait"), h("span", null, `The sliders stand at ${settings(now)}. That was not rehearsed.`)),
      now.shards > 1 && job.state !== "running" && buttons(isOther ? "Rehearse this" : "Rehearse again", begin),
    );
    return root;
  }

  return {
    open() {
      if (mayMeasure) open();
      else fill(place, card("Consensus on the records", {}, empty("For the operator", "How well shards agree is rehearsed on people's records, so it is shown to the operator alone.")).root);
    },
    update: () => mayMeasure && look(),
    stop,
  };
}

// With (α,β,γ): what the theorems allow for these numbers. It is arithmetic, and says what it supposes. Below it, what a
// rehearsal of consensus found.
function planned(whole, chosen, context) {
  const place = h("div", { class: "stack" });
  const below = h("div", { class: "stack" });
  const rehearsal = rehearsed(below, chosen, context);
  let turn = 0;
  let isOpen = false;
  let move = null;
  async function look() {
    turn += 1;
    const mine = turn;
    const asked = new URLSearchParams({
      shards: chosen.shards,
      copies: Math.min(chosen.copies, chosen.shards),
      deletions_per_day: chosen.deletions,
      batches_per_day: chosen.batches,
      predictions_per_day: chosen.predictions,
      alpha: chosen.alpha,
    });
    try {
      const { plan, why } = await ask(`/v1/plan?${asked}`);
      if (!isOpen || mine !== turn) return;
      below.hidden = !plan;
      fill(place, plan ? answer(plan) : card("No such promise here", {}, empty("Not for numbers", `${why[0].toUpperCase()}${why.slice(1)}. This deployment predicts numbers, so there is no consensus to rehearse.`)).root);
    } catch (error) {
      if (isOpen && mine === turn) fill(place, failure(error, look));
    }
  }
  const update = () => (look(), rehearsal.update());
  function answer(plan) {
    const { root, body } = card("What could be promised", { note: `Computed from public numbers by the theorems; nothing was measured. Each shard would learn from about ${count(Math.round(plan.records_per_shard))} records.` });
    const offers = plan.offers.filter((each) => each.predictions !== 0);
    const none = plan.offers.filter((each) => each.predictions === 0);
    fill(
      body,
      h("p", { class: "verdict" }, plan.verdict),
      offers.length
        ? chart(() => `Work a day of each way of publishing, against retraining one model`, 60 + 40 * offers.length, (width, height) => work(offers, plan, width, height)).root
        : h("p", { class: "note" }, `With ${plural(plan.shards, "shard")} not even one prediction is certified.`),
      plan.remarks.map((each) => h("p", { class: "remark" }, icon("wait"), h("span", null, each))),
      offers.length > 0 && h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ways of publishing" },
        h(
          "table",
          { class: "offers" },
          h("thead", null, h("tr", null, ["Publishing", "Predictions", "Last", "All agree", "80% agree", "Theorem"].map((each) => h("th", { scope: "col" }, each)))),
          h("tbody", null, offers.map((each) => offer(each, plan))),
        ),
      ),
      none.length ? h("details", { class: "numbers" }, h("summary", null, "What cannot be promised"), h("ul", null, none.map((each) => h("li", null, h("strong", null, each.name), each.reason ? `: ${each.reason}.` : ": no prediction is certified at this noise.")))) : null,
      h("p", null, h("strong", null, "Recommended for these numbers: "), plan.recommended, " ", plan.recommended_shards !== plan.shards && h("button", { type: "button", class: "link", onclick: () => (move({ shards: plan.recommended_shards, copies: plan.recommended_copies }), update()) }, `Try ${plural(plan.recommended_shards, "shard")}`)),
      h("details", { class: "numbers" }, h("summary", null, "What this means"), h("ul", null, plan.meaning.map((each) => h("li", null, each)), h("li", null, "Predictions: the most in a generation, from one full training to the next. Last: how long they last at this traffic. All agree, 80% agree: the chance of the right answer when so many of the shards agree on it."))),
    );
    return root;
  }
  const days = (value) => (value === null ? "–" : spell(value * 86400));
  const offer = (each, plan) =>
    h(
      "tr",
      { class: each.name === plan.best ? "best" : "" },
      h("th", { scope: "row" }, each.name, each.name === plan.best && h("span", { class: "tag" }, "best"), each.assumption && h("p", { class: "note" }, `Supposes that ${each.assumption}.`)),
      h("td", null, each.predictions === null ? "no limit" : count(each.predictions)),
      h("td", null, days(each.generation_days)),
      h("td", null, percent(each.unanimous)),
      h("td", null, percent(each.majority)),
      h("td", null, each.certified_by?.replace(" (paper form)", "") ?? "–"),
    );
  return {
    open(mover) {
      move = mover;
      isOpen = true;
      fill(whole, place, below);
      fill(place, loading(5));
      look();
      rehearsal.open();
    },
    update,
    stop() {
      isOpen = false;
      turn += 1;
      rehearsal.stop();
    },
  };
}

// Work a day as bars on a log scale, with that of retraining one model as a line.
function work(offers, plan, width, height) {
  const all = [...offers.map((each) => each.passes), plan.one_model_passes].filter((each) => each > 0);
  const [low, high] = [Math.min(...all) / 3, Math.max(...all) * 2];
  const [left, right, floor] = [0, width, height - 40];
  const x = (value) => left + ((right - left) * Math.log(Math.max(value, low) / low)) / Math.log(high / low);
  const text = (at, y, said, css, anchor = "start") => svg("text", { x: at, y, class: css, "text-anchor": anchor }, said);
  const one = x(plan.one_model_passes);
  return [
    ...offers.flatMap((each, at) => {
      const y = 8 + at * 40;
      return [
        svg("rect", { x: left, y: y + 16, width: Math.max(2, x(each.passes) - left), height: 10, rx: 3, class: `bar ${each.cheaper ? "good" : "idle"}` }),
        text(left, y + 11, `${each.name}: ${short(each.passes)} passes a day`, "name"),
      ];
    }),
    svg("line", { x1: one, y1: 0, x2: one, y2: floor, class: "dashed" }),
    svg("line", { x1: left, y1: floor, x2: right, y2: floor, class: "axis" }),
    ...decades(low, high, Math.max(2, Math.floor(width / 100))).map((value) => text(x(value), floor + 16, short(value), "soft", x(value) < 20 ? "start" : x(value) > width - 20 ? "end" : "middle")),
    text(Math.min(one, right), height - 4, `retraining one model: ${short(plan.one_model_passes)} passes over the data a day`, "soft", one > width / 2 ? "end" : "start"),
  ];
}
