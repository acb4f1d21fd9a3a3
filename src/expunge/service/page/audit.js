// Audit: train shards again and compare bits, attack a copy in two arms, and check that the log continues what was seen.

import { ask, open } from "./api.js";
import { chart, intervals, intervalsHeight } from "./charts.js";
import { card, copyable, count, empty, failure, fill, h, icon, loading, moment, plural, say, short, time, toast, write } from "./dom.js";
import { continues } from "./sha256.js";
import { progress } from "./what-if.js";

const POLL_MILLISECONDS = 700;
const ATTACKS = {
  "label-only": ["Adaptive deletions", "A requester sees only labels, and deletes what was answered rightly: the attack of the paper."],
  membership: ["Membership", "Do the updated models still know the people who were deleted?"],
  "white-box": ["White box", "An attacker who is given every model, whole."],
  "slow-down": ["Slow down", "Can a requester choose deletions that touch more shards than they should?"],
  lookup: ["Plain SISA, for comparison", "On made-up data: what the test finds in a scheme that promises nothing."],
};

export function mount(place, context) {
  const cards = [recomputation(context), attacks(context), consistency(context)];
  fill(
    place,
    h("div", { class: "title" }, h("h1", { tabindex: "-1" }, "Audit"), h("p", null, "Do not take the service's word for it.")),
    h("div", { class: "grid audit" }, cards.map((each) => each.root)),
  );
  return () => cards.forEach((each) => each.stop());
}

// Follow pieces of work until they end. `path` lists them under `name`, newest first.
function following(path, name, draw, shown) {
  let timer = null;
  let ended = false;
  async function look() {
    clearTimeout(timer);
    try {
      const found = (await ask(path))[name];
      if (ended) return;
      draw(found);
      if (found[0]?.state === "running") timer = setTimeout(look, POLL_MILLISECONDS);
    } catch (error) {
      if (!ended) fill(shown, failure(error, look));
    }
  }
  return { look, stop: () => ((ended = true), clearTimeout(timer)) };
}

const stopper = (path, follow) => (job) => async () => {
  await ask(`${path}/${job.id}`, { method: "DELETE" });
  follow.look();
};

function recomputation(context) {
  const path = "/v1/recompute";
  const { root, body } = card("Recomputation", { note: "Shards are trained again from the records that are left and from the recipe, and compared with the models in service, bit for bit." });
  const shown = h("div", { class: "stack", "aria-live": "off" }, loading(2));
  const shards = h("select", { id: "how-many" });
  const seed = h("input", { id: "seed", autocomplete: "off", spellcheck: "false", maxlength: "200", placeholder: "any text", "aria-describedby": "seed-note" });
  const record = h("input", { type: "checkbox", id: "record", checked: true });
  const said = h("p", { class: "form-error", role: "alert" });
  const button = h("button", { type: "submit", class: "primary" }, "Recompute now");
  const total = context.state.shards;
  const choices = [...new Set([Math.min(20, total), Math.min(100, total)])].filter((each) => each < total);
  fill(shards, choices.map((each) => h("option", { value: each }, `${count(each)} of ${count(total)}, at random`)), h("option", { value: "all" }, `all ${count(total)}`));
  let wasRunning = false;
  const follow = following(path, "recomputations", draw, shown);
  const stop = stopper(path, follow);

  async function submit(event) {
    event.preventDefault();
    write(said, "");
    try {
      const data = { shards: shards.value === "all" ? "all" : Number(shards.value), record: record.checked };
      if (seed.value.trim()) data.seed = seed.value.trim();
      await ask(path, { method: "POST", data });
      say("The recomputation has begun");
      follow.look();
    } catch (error) {
      write(said, error.message);
    }
  }
  function draw([last, ...before]) {
    const isRunning = last?.state === "running";
    if (wasRunning && !isRunning) {
      say(last.result?.verdict ?? "The recomputation ended");
      context.refresh();
    }
    wasRunning = isRunning;
    button.disabled = isRunning;
    fill(
      shown,
      !last && h("p", { class: "note" }, "This service has recomputed nothing since it started."),
      isRunning && progress(last, stop(last)),
      last && !isRunning && outcome(last),
      before.length > 0 && h("details", { class: "numbers" }, h("summary", null, `Earlier ones (${before.length})`), h("ul", { class: "short-list" }, before.map(brief))),
    );
  }
  fill(
    body,
    h(
      "form",
      { class: "stack", onsubmit: submit, novalidate: true },
      h("div", { class: "pair" }, h("div", { class: "field" }, h("label", { for: "how-many" }, "Shards"), shards), h("div", { class: "field" }, h("label", { for: "seed" }, "Your seed (optional)"), seed)),
      h("p", { class: "note", id: "seed-note" }, "The seed decides which shards are drawn, so that the operator cannot know them beforehand."),
      h("div", { class: "check" }, record, h("label", { for: "record" }, "Write the result into the log, and so into later certificates")),
      said,
      h("div", { class: "row" }, button),
    ),
    shown,
  );
  if (!context.state.recomputable) {
    fill(body, empty("For the operator", "Under this promise what a recomputation finds, and how long it takes, must not leave the trust boundary. An auditor gets a bundle: expunge export --for-audit."));
    return { root, stop() {} };
  }
  follow.look();
  return { root, stop: follow.stop };
}

const brief = (job) =>
  h("li", null, h("span", { class: `state ${job.result ? (job.result.agrees ? "applied" : "failed") : "cancelled"}` }, job.result ? (job.result.agrees ? "agrees" : "differs") : job.state), h("span", { class: "grow" }, job.result ? `${count(job.result.num_checked)} of ${plural(job.result.num_shards, "shard")}, round ${count(job.result.round)}` : job.error ?? ""), h("span", { class: "note" }, time(job.ended_at)));

function outcome(job) {
  const found = job.result;
  if (job.state === "cancelled") return h("p", { class: "note" }, "The last one was stopped.");
  if (!found) return failure({ message: `The recomputation failed: ${job.error}.` });
  return h(
    "div",
    { class: `outcome ${found.agrees ? "good" : "bad"}` },
    icon(found.agrees ? "check" : "bad"),
    h(
      "div",
      null,
      h("p", { class: "verdict" }, found.verdict),
      h("p", { class: "note" }, `${count(found.num_agreeing)} of ${count(found.num_checked)} agree, of ${plural(found.num_shards, "shard")}; round ${count(found.round)}, ${plural(found.num_records, "record")}, `, time(job.ended_at), found.recorded ? ". It is in the log." : ". It is not in the log.", job.error ? ` It was not recorded: ${job.error}.` : ""),
      found.different.length > 0 && h("p", null, `Shards that differ: ${found.different.slice(0, 20).join(", ")}${found.different.length > 20 ? " and more" : ""}.`),
      h("details", null, h("summary", null, "What this shows, and what it does not"), h("h3", null, "It shows"), h("ul", null, found.shows.map((each) => h("li", null, each))), h("h3", null, "It does not show"), h("ul", null, found.does_not_show.map((each) => h("li", null, each)))),
    ),
  );
}

function attacks(context) {
  const path = "/v1/audits";
  const { root, body } = card("Attack in two arms", { note: "A copy of this deployment is attacked again and again, with fresh randomness. Then updated models are compared with models trained from scratch." });
  const shown = h("div", { class: "stack" }, loading(2));
  const attack = h("select", { id: "attack", onchange: () => write(about, ATTACKS[attack.value][1]), "aria-describedby": "attack-note" }, Object.entries(ATTACKS).map(([name, [title]]) => h("option", { value: name }, title)));
  const about = h("p", { class: "note", id: "attack-note" }, ATTACKS["label-only"][1]);
  const trials = h("input", { type: "number", id: "trials", min: 2, max: 2000, value: "40", required: true });
  const records = h("input", { type: "number", id: "records", min: 5, value: "300", required: true });
  const said = h("p", { class: "form-error", role: "alert" });
  const button = h("button", { type: "submit", class: "primary" }, "Attack a copy");
  let wasRunning = false;
  const follow = following(path, "audits", draw, shown);
  const stop = stopper(path, follow);

  async function submit(event) {
    event.preventDefault();
    write(said, "");
    try {
      const data = { scenario: attack.value, trials: Number(trials.value) };
      if (attack.value !== "lookup") data.records = Number(records.value);
      await ask(path, { method: "POST", data });
      say("The audit has begun");
      follow.look();
    } catch (error) {
      write(said, error.message);
    }
  }
  function draw([last, ...before]) {
    const isRunning = last?.state === "running";
    if (wasRunning && !isRunning) say(last.result?.report.verdict ?? "The audit ended");
    wasRunning = isRunning;
    button.disabled = isRunning;
    fill(
      shown,
      !last && h("p", { class: "note" }, "No audit was run since this service started."),
      isRunning && progress(last, stop(last)),
      last && !isRunning && findings(last, context.state.promise === "exact" && last.options.scenario !== "lookup"),
      before.length > 0 &&
        h("details", { class: "numbers" }, h("summary", null, `Earlier ones (${before.length})`), h("ul", { class: "short-list" }, before.map((each) => h("li", null, h("span", { class: "grow" }, `${ATTACKS[each.options.scenario][0]}: ${each.result?.report.verdict ?? each.error ?? each.state}`), h("span", { class: "note" }, time(each.ended_at)))))),
    );
  }
  fill(
    body,
    h(
      "form",
      { class: "stack", onsubmit: submit, novalidate: true },
      h("div", { class: "field" }, h("label", { for: "attack" }, "Attack"), attack, about),
      h("div", { class: "pair" }, h("div", { class: "field" }, h("label", { for: "trials" }, "Trials"), trials), h("div", { class: "field" }, h("label", { for: "records" }, "Records in the copy"), records)),
      said,
      h("div", { class: "row" }, button),
    ),
    shown,
  );
  follow.look();
  return { root, stop: follow.stop };
}

const ARMS = [["before", "before any request"], ["unlearned", "updated models"], ["retrained", "trained from scratch"]];
function findings(job, isExact) {
  if (job.state === "cancelled") return h("p", { class: "note" }, "The last one was stopped.");
  if (!job.result) return failure({ message: `The audit failed: ${job.error}.` });
  const found = job.result.report;
  const tone = found.alarm ? "bad" : found.rejected ? "wait" : "good";
  const rows = ARMS.filter(([arm]) => found[arm].trials).map(([arm, name]) => ({ name, css: arm, low: found[arm].interval[0], value: found[arm].rate, high: found[arm].interval[1] }));
  const certified = found.alpha_certified === null ? "nothing is certified" : `at most ${short(found.alpha_certified)} is certified`;
  return h(
    "div",
    { class: `outcome ${tone}` },
    icon(tone === "good" ? "check" : tone === "bad" ? "bad" : "wait"),
    h(
      "div",
      null,
      h("p", { class: "verdict" }, `${found.verdict[0].toUpperCase()}${found.verdict.slice(1)}.`),
      h("p", { class: "note" }, `${ATTACKS[job.options.scenario][0]}, ${plural(found.trials, "trial")}, `, time(job.ended_at), `. p = ${found.p_value < 1e-4 ? found.p_value.toExponential(1) : short(found.p_value)}; α is at least ${short(found.alpha_lower)} by these trials, and ${certified}.`),
      isExact && h("p", { class: "note" }, "This compares with fresh randomness. The exact promise compares with the same recipe, and says nothing about that: what checks it is a recomputation."),
      h("p", null, `How often: ${found.event.cut === 0.5 && !found.trials_to_choose_the_event ? found.event.statistic : `${found.event.statistic} ${found.event.side} ${short(found.event.cut)}`}`),
      chart(`How often, in each arm: ${rows.map((each) => `${each.name} ${short(each.value)}`).join(", ")}`, intervalsHeight(rows.length), (width) => intervals(rows, width)).root,
      h("button", { type: "button", class: "plain", onclick: () => open(`/v1/audits/${job.id}`).catch((error) => toast(error.message, "bad")) }, "Open the full report"),
    ),
  );
}

const entries = (size) => (size === 1 ? "1 entry" : `${count(size)} entries`);

// The log may only grow. This browser keeps the last head that it saw, and checks the proof itself.
function consistency(context) {
  const { root, body } = card("The log", { note: "No entry can be taken back unseen: this browser keeps the last head that it saw, and checks that the log still begins with it.", wide: true });
  const shown = h("div", { class: "stack" }, loading(2));
  const pasted = h("textarea", { id: "earlier", rows: "4", spellcheck: "false", autocomplete: "off", placeholder: "expunge/…\n41\nbase64 of the root\n\n— signatures" });
  const result = h("div", { class: "stack", "aria-live": "polite" });
  fill(
    body,
    shown,
    h("details", null, h("summary", null, "Check a checkpoint of your own"), h("form", { class: "stack", onsubmit: checkPasted, novalidate: true }, h("div", { class: "field" }, h("label", { for: "earlier" }, "The checkpoint, as a certificate or `expunge log checkpoint` gives it"), pasted), h("div", { class: "row" }, h("button", { type: "submit", class: "plain" }, "Check"))), result),
  );
  const place = (origin) => `expunge-log ${origin}`;
  const known = (origin) => {
    try {
      return JSON.parse(localStorage.getItem(place(origin)));
    } catch {
      return null;
    }
  };

  async function proves(old, head) {
    if (old.size === head.size) return old.root === head.root;
    if (old.size > head.size) return false;
    const { proof } = await ask(`/v1/log/consistency?from=${old.size}&to=${head.size}`);
    return continues(old.size, old.root, head.size, head.root, proof.map(hexOf));
  }
  let told = "";
  const stop = context.follow(async ({ log }) => {
    if (told === log.root) return;
    told = log.root;
    const head = { size: log.size, root: log.root, at: new Date().toISOString() };
    const before = known(log.origin);
    try {
      const holds = before ? await proves(before, head) : null;
      if (holds !== false) localStorage.setItem(place(log.origin), JSON.stringify(head));
      draw(log, before, holds);
    } catch (error) {
      told = "";
      fill(shown, failure(error, context.refresh));
    }
  });
  function draw(log, before, holds) {
    fill(
      shown,
      h(
        "div",
        { class: `outcome ${holds === false ? "bad" : "good"}` },
        icon(holds === false ? "bad" : "check"),
        h(
          "div",
          null,
          h(
            "p",
            { class: "verdict" },
            holds === null && `This browser sees this log for the first time, at ${entries(log.size)}. It will check from now on.`,
            holds === true && `The log of ${entries(log.size)} continues the ${entries(before.size)} that this browser saw on ${moment(before.at)}.`,
            holds === false && `The log does not continue what this browser saw on ${moment(before.at)} (${entries(before.size)}): there are two histories, or it is another copy.`,
          ),
          h("p", { class: "note" }, "Head ", copyable(log.root, "the head of the log", `${log.root.slice(0, 24)}…`), " of ", copyable(log.origin, "the name of the log")),
          log.cosigned && log.cosigned.by.map((each) => h("p", { class: "note" }, `Cosigned by ${each.name} at ${entries(log.cosigned.size)}, ${moment(each.at)}.`)),
        ),
      ),
    );
  }

  async function checkPasted(event) {
    event.preventDefault();
    const { log } = context.state;
    try {
      const old = read(pasted.value);
      if (old.origin !== log.origin) throw new Error(`That checkpoint is of the log ${old.origin}, and this log is ${log.origin}.`);
      const holds = await proves(old, log);
      fill(result, h("p", { class: `outcome ${holds ? "good" : "bad"}` }, icon(holds ? "check" : "bad"), h("span", null, holds ? `The log continues it: its first ${entries(old.size)} are the same.` : "The log does not continue it: there are two histories, or it is another copy.")));
    } catch (error) {
      fill(result, failure(error));
    }
  }
  return { root, stop };
}

// The origin, size and root of a checkpoint in the form of C2SP.
function read(text) {
  const [origin, size, root] = text.trim().split("\n").map((each) => each.trim());
  if (!/^\d+$/.test(size ?? "") || !/^[A-Za-z0-9+/]{43}=$/.test(root ?? "")) throw new Error("That is no checkpoint: its second line is a number, and its third the root.");
  return { origin, size: Number(size), root: hexOf(root) };
}

const hexOf = (base64) => Array.from(atob(base64), (each) => each.charCodeAt(0).toString(16).padStart(2, "0")).join("");
