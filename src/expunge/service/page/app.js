// The shell: the key, the pages and what is common to them. `live` polls the overview, which every page follows.

import { ask, forget, keep, keyOf, poll, Silent } from "./api.js";
import { failure, fill, h, icon, loading, say, write } from "./dom.js";
import * as audit from "./audit.js";
import * as inside from "./inside.js";
import * as overview from "./overview.js";
import * as requests from "./requests.js";
import * as whatIf from "./what-if.js";

const EVERYBODY = ["predict", "update", "auditor", "operator"];
const PAGES = {
  overview: { title: "Overview", roles: EVERYBODY, page: overview },
  requests: { title: "Requests", roles: ["update", "auditor", "operator"], page: requests },
  "what-if": { title: "What if", roles: ["auditor", "operator"], page: whatIf },
  audit: { title: "Audit", roles: ["auditor", "operator"], page: audit },
  inside: { title: "Inside", roles: ["operator"], page: inside },
};
const LIVE_MILLISECONDS = 2000;

const side = document.getElementById("side");
const main = document.getElementById("main");
const followers = new Set();
let live = null;
let state = null;
let leave = null;
let shell = null;

// What a page is given: the last overview, a way to follow the next ones, and the role.
const context = {
  get state() {
    return state;
  },
  get role() {
    return state.role;
  },
  follow(action) {
    followers.add(action);
    if (state) action(state);
    return () => followers.delete(action);
  },
  refresh: () => live?.now(),
};

function start() {
  if (!keyOf()) return enter();
  fill(main, h("div", { class: "page" }, loading(4)));
  live = poll(look, LIVE_MILLISECONDS);
}

async function look() {
  try {
    const found = await ask("/v1/overview");
    const first = state === null;
    state = found;
    if (first) open();
    tell(true);
    for (const each of [...followers]) each(found);
  } catch (error) {
    if (error.status !== 401) tell(false, error);
    throw error;
  }
}

function tell(isLive, error) {
  if (!shell) {
    if (!isLive) fill(main, h("div", { class: "page" }, failure(error, () => live.now())));
    return;
  }
  write(shell.name, state.name);
  shell.pulse.classList.toggle("lost", !isLive);
  if (write(shell.said, isLive ? "Live" : error instanceof Silent ? "No answer" : "Out of step") && !isLive)
    say(`${error.message} Trying again.`);
}

// Ask for the key.
function enter(why = "") {
  live?.stop();
  live = null;
  close();
  state = null;
  side.hidden = true;
  const field = h("input", {
    id: "key",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    placeholder: "expunge_…",
    "aria-describedby": "key-note",
  });
  const said = h("p", { class: "form-error", role: "alert" }, why);
  const button = h("button", { type: "submit" }, "Open");
  async function submit(event) {
    event.preventDefault();
    const key = field.value.trim();
    if (!key) return write(said, "Enter a key.");
    write(said, "");
    button.disabled = true;
    keep(key);
    try {
      await ask("/v1/overview");
      start();
    } catch (error) {
      forget();
      button.disabled = false;
      write(said, error.status === 401 ? "This key opens nothing. It may be wrong, expired or revoked." : error.message);
      field.focus();
    }
  }
  document.title = "expunge";
  fill(
    main,
    h(
      "div",
      { class: "gate" },
      h("div", { class: "mark", "aria-hidden": "true" }, h("i"), h("i"), h("i", { class: "gone" }), h("i")),
      h("h1", null, "expunge"),
      h("p", { class: "lead" }, "Models that forget, with evidence that anybody can check."),
      h(
        "form",
        { class: "gate-form", onsubmit: submit, novalidate: true },
        h("label", { for: "key" }, "Your key"),
        h("div", { class: "row" }, field, button),
        said,
        h(
          "p",
          { class: "note", id: "key-note" },
          "The key stays in this tab and is gone when you close it. The operator makes one with ",
          h("code", null, "expunge keys create DIR --role operator"),
          ".",
        ),
      ),
    ),
  );
  field.focus();
}

function lock() {
  forget();
  enter();
  say("Locked. The key is gone from this tab.");
}

// Draw the frame, once the role is known.
function open() {
  const allowed = Object.entries(PAGES).filter(([, each]) => each.roles.includes(state.role));
  const links = Object.fromEntries(
    allowed.map(([name, { title }]) => [name, h("a", { href: `#/${name}` }, icon(name), h("span", null, title))]),
  );
  shell = {
    links,
    name: h("p", { class: "deployment" }, state.name),
    pulse: h("span", { class: "pulse", "aria-hidden": "true" }),
    said: h("span", null, "Live"),
  };
  side.hidden = false;
  fill(
    side,
    h(
      "div",
      { class: "brand" },
      h("div", { class: "mark", "aria-hidden": "true" }, h("i"), h("i"), h("i", { class: "gone" }), h("i")),
      h("div", null, h("p", { class: "wordmark" }, "expunge"), shell.name),
    ),
    h("nav", { "aria-label": "Pages" }, Object.values(links)),
    h(
      "div",
      { class: "foot" },
      h("p", { class: "live" }, shell.pulse, shell.said),
      h("p", { class: "who" }, h("span", { class: "role" }, state.role), h("span", { class: "key-id" }, state.key)),
      h("button", { type: "button", class: "plain", onclick: lock }, icon("lock"), "Lock"),
    ),
  );
  show();
}

function close() {
  leave?.();
  leave = null;
  followers.clear();
  shell = state ? shell : null;
}

function show() {
  if (!state || !shell) return;
  const asked = location.hash.replace(/^#\/?/, "").split("?")[0] || "overview";
  const { title, roles, page } = PAGES[asked] ?? {};
  close();
  for (const [name, link] of Object.entries(shell.links)) {
    if (name === asked) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const place = h("div", { class: `page page-${asked}` });
  fill(main, place);
  if (!page || !roles.includes(state.role)) {
    document.title = "expunge";
    fill(
      place,
      h("h1", { tabindex: "-1" }, page ? "This page is not for your key" : "There is no such page"),
      h("p", null, page ? `It takes a key for ${roles.join(" or ")}; yours is for ${state.role}. ` : "", h("a", { href: "#/overview" }, "Go to the overview")),
    );
  } else {
    document.title = `${title} · ${state.name} · expunge`;
    leave = page.mount(place, context) ?? null;
  }
  place.querySelector("h1")?.focus({ preventScroll: true });
  scrollTo(0, 0);
}

addEventListener("hashchange", show);
addEventListener("locked", (event) => {
  if (!keyOf() || !state) return;
  forget();
  enter(`The key no longer opens this service: ${event.detail ?? "it may have expired or been revoked"}.`);
});
start();
