// Requests: find them, delete records, and answer the person who asked.

import { ask, download, open } from "./api.js";
import { card, clock, copyable, count, empty, failure, fill, h, loading, plural, say, toast, write } from "./dom.js";
import { about, badge, inRound, list, what } from "./updates.js";

const PER_PAGE = 20;
const STATES = { "": "All", pending: "Pending", applied: "Applied", cancelled: "Cancelled" };
const KEYS = { ids: "id", subjects: "subject" };
const WAYS = { ids: "Ids", subjects: "Subjects", file: "File" };

export function mount(place, context) {
  const mayChange = ["update", "operator"].includes(context.role);
  const form = mayChange && deletion(context, () => table.refresh());
  const table = listing(context, mayChange);
  fill(
    place,
    h("div", { class: "title with-button" }, h("div", null, h("h1", { tabindex: "-1" }, "Requests"), h("p", null, "What was asked, and what came of it.")), form && opener(form)),
    form && form.root,
    table.root,
  );
  return table.stop;
}

// The form is there when it is asked for.
function opener(form) {
  const button = h("button", { type: "button", class: "danger", "aria-expanded": "false", "aria-controls": "deletion", onclick: () => turn(form.root.hidden) }, "Delete records");
  function turn(isOpen) {
    form.root.hidden = !isOpen;
    button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) form.root.querySelector("input, textarea").focus();
  }
  form.root.hidden = true;
  return button;
}

// The table, live: it is asked for again when the log has grown or a request changed its state.
function listing(context, mayChange) {
  const { root, body } = card("All requests", { wide: true });
  const chosen = { state: "", after: "", before: [], find: {} };
  const search = h("input", { type: "search", id: "find", placeholder: "Search", autocomplete: "off", spellcheck: "false" });
  const filters = h(
    "fieldset",
    { class: "segments" },
    h("legend", { class: "unseen" }, "State"),
    Object.entries(STATES).map(([state, name]) =>
      h("label", null, h("input", { type: "radio", name: "state", value: state, checked: state === "", onchange: () => choose({ state }) }), h("span", null, name)),
    ),
  );
  const by = h(
    "select",
    { id: "find-by", "aria-label": "Search by", onchange: () => search.value && find() },
    h("option", { value: "request" }, "number"),
    h("option", { value: "ids" }, "record id"),
    context.state.keys.subject && h("option", { value: "subjects" }, "subject"),
  );
  const shown = h("div", { class: "listing", "aria-busy": "true" }, loading(6));
  const pages = h("div", { class: "pages" });
  fill(
    body,
    h(
      "form",
      { class: "toolbar", role: "search", onsubmit: (event) => (event.preventDefault(), find()) },
      filters,
      h("div", { class: "row find" }, h("label", { class: "unseen", for: "find" }, "Search requests"), by, search, h("button", { type: "submit", class: "plain" }, "Find")),
    ),
    shown,
    pages,
  );
  search.addEventListener("search", () => !search.value && find());

  function choose(change) {
    Object.assign(chosen, { after: "", before: [] }, change);
    refresh();
  }
  function find() {
    const text = search.value.trim();
    choose({ find: text ? { [by.value]: text } : {} });
  }

  let rows = [];
  let turn = 0;
  async function refresh() {
    turn += 1;
    const mine = turn;
    shown.setAttribute("aria-busy", "true");
    try {
      const [[kind, text] = []] = Object.entries(chosen.find);
      const found =
        kind === "request"
          ? { updates: await exactly(text, chosen.state), next: null }
          : kind
            ? await about(kind, asKey(text, context.state.keys[KEYS[kind]]), chosen.state)
            : await list({ state: chosen.state, after: chosen.after, limit: PER_PAGE });
      if (mine !== turn) return;
      rows = found.updates;
      draw(found);
    } catch (error) {
      if (mine === turn) fill(shown, failure(error, refresh));
    } finally {
      if (mine === turn) shown.setAttribute("aria-busy", "false");
    }
  }

  function draw(found) {
    const isFiltered = chosen.state || Object.keys(chosen.find).length;
    if (!rows.length) {
      fill(
        shown,
        isFiltered
          ? empty("Nothing fits", "No request fits this filter and search.", h("button", { type: "button", class: "plain", onclick: reset }, "Show all"))
          : empty("No requests yet", mayChange ? "Delete a record with the form, or send a request to the service." : "They appear here as soon as one is accepted."),
      );
    } else {
      // The focus stays where it is when the table is drawn anew.
      const focused = document.activeElement?.closest?.("[data-key]");
      const key = shown.contains(focused) ? focused.dataset.key : null;
      fill(shown, asTable(rows, mayChange, refresh));
      if (key) shown.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
    }
    const older = h("button", { type: "button", class: "plain", disabled: !found.next, onclick: () => turnPage(found.next) }, "Older");
    const newer = h("button", { type: "button", class: "plain", disabled: !chosen.before.length, onclick: turnBack }, "Newer");
    fill(pages, found.next || chosen.before.length ? [newer, older] : []);
  }
  function turnPage(next) {
    chosen.before.push(chosen.after);
    chosen.after = next;
    refresh();
  }
  function turnBack() {
    chosen.after = chosen.before.pop();
    refresh();
  }
  function reset() {
    search.value = "";
    filters.querySelector("input").checked = true;
    choose({ state: "", find: {} });
  }

  let size = null;
  const stop = context.follow((state) => {
    if (size === state.log.size) return;
    size = state.log.size;
    if (!chosen.after) refresh();
  });
  return { root, refresh, stop };
}

// An id as JSON: a whole number where the deployment's ids are numbers. Its digits stay as they are typed, because the
// browser's numbers are too small for some.
const asKey = (text, kind) => (kind !== "str" && /^(0|-?[1-9]\d{0,18})$/.test(text) ? text : JSON.stringify(text));

// A request by its number, or none.
async function exactly(number, state) {
  try {
    const found = await ask(`/v1/updates/${encodeURIComponent(number)}`);
    return !state || found.state === state ? [found] : [];
  } catch (error) {
    if (error.status === 404) return [];
    throw error;
  }
}

const COLUMNS = ["State", "What", "Accepted", "Done by", "Round", "Number", "Papers"];
function asTable(rows, mayChange, refresh) {
  return h(
    "table",
    { class: "requests-table" },
    h("caption", { class: "unseen" }, "Requests, newest first"),
    h("thead", null, h("tr", null, COLUMNS.map((each) => h("th", { scope: "col" }, each)))),
    h("tbody", null, rows.map((each) => line(each, mayChange, refresh))),
  );
}

function line(update, mayChange, refresh) {
  const number = update.request;
  const path = `/v1/certificates/${number}`;
  const act = (action) => async () => {
    try {
      await action();
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  const button = (name, title, action) =>
    h("button", { type: "button", class: "link", "data-key": `${name} ${number}`, "aria-label": `${title} of request ${number.slice(0, 8)}`, onclick: act(action) }, title);
  const cell = (name, ...content) => h("td", { "data-name": name }, content);
  return h(
    "tr",
    null,
    cell("State", badge(update.state)),
    cell("What", what(update)),
    cell("Accepted", clock(update.accepted_at)),
    cell("Done by", clock(update.applied_by ?? update.cancelled_at)),
    cell("Round", inRound(update)),
    cell("Number", copyable(number, "the number", `${number.slice(0, 8)}…`)),
    cell(
      "Papers",
      h(
        "div",
        { class: "actions" },
        button("certificate", "Certificate", () => open(path)),
        button("json", "JSON", () => download(path, `certificate-${number}.json`)),
        button("letter", "Letter", () => writeLetter(number)),
        mayChange && update.state === "pending" && button("cancel", "Take back", () => cancel(number, refresh)),
      ),
    ),
  );
}

async function cancel(number, refresh) {
  const sure = await confirm("Take this request back?", [h("p", null, "It has not been applied. Nothing of it is done, and a certificate will say that it was withdrawn.")], "Take back");
  if (!sure) return;
  await ask(`/v1/updates/${number}`, { method: "DELETE" });
  toast("The request was taken back");
  refresh();
}

// Ask before something that cannot be undone. The browser keeps the focus inside a dialog, and Escape closes it.
export function confirm(title, content, name, kind = "danger") {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { "aria-labelledby": "dialog-title", onclose: () => (resolve(dialog.returnValue === "yes"), dialog.remove()) },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "dialog-title" }, title),
        content,
        h("div", { class: "row end" }, h("button", { class: "plain", type: "submit", formnovalidate: true }, "Not now"), h("button", { class: kind, type: "submit", value: "yes" }, name)),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

async function writeLetter(number) {
  const names = { recipient: "To whom", sender: "From whom", reference: "Your reference" };
  const fields = Object.fromEntries(
    Object.keys(names).map((name) => [name, h("input", { id: `letter-${name}`, autocomplete: "off", maxlength: "200" })]),
  );
  const language = h("select", { id: "letter-language" }, h("option", { value: "en" }, "English"), h("option", { value: "de" }, "Deutsch"));
  const content = [
    h("p", { class: "note" }, "The letter says what the certificate says, and no more. Names are sent to the service for this one page and kept nowhere."),
    Object.entries(names).map(([name, title]) => h("div", { class: "field" }, h("label", { for: `letter-${name}` }, title), fields[name])),
    h("div", { class: "field" }, h("label", { for: "letter-language" }, "Language"), language),
  ];
  if (!(await confirm("Letter to the person", content, "Write", "primary"))) return;
  const data = { language: language.value, ...Object.fromEntries(Object.entries(fields).map(([name, each]) => [name, each.value.trim()])) };
  await open(`/v1/letters/${number}`, { method: "POST", data });
}

// The form to delete: by id, by subject, or many of either from a file.
function deletion(context, done) {
  const { root, body } = card("Delete records", { note: "What is deleted is erased, and the models that learned from it are trained again without it." });
  root.id = "deletion";
  const way = { now: "ids" };
  const text = h("textarea", { id: "names", rows: "4", spellcheck: "false", autocomplete: "off", "aria-describedby": "names-note" });
  const label = h("label", { for: "names" });
  const note = h("p", { class: "note", id: "names-note" });
  const file = h("input", { type: "file", id: "file", accept: ".txt,.csv,text/plain,text/csv", onchange: readFile });
  const kind = h("select", { id: "file-kind" }, h("option", { value: "ids" }, "ids of records"), context.state.keys.subject && h("option", { value: "subjects" }, "subjects"));
  const fromFile = h("div", { class: "stack" }, h("div", { class: "field" }, h("label", { for: "file" }, "A text file, one name a line"), file), h("div", { class: "field" }, h("label", { for: "file-kind" }, "Its lines are"), kind));
  const typed = h("div", { class: "field" }, label, text, note);
  const said = h("p", { class: "form-error", role: "alert" });
  const button = h("button", { type: "submit", class: "danger" }, "Delete…");
  const tabs = h(
    "fieldset",
    { class: "segments" },
    h("legend", { class: "unseen" }, "Delete by"),
    Object.entries(WAYS).filter(([name]) => name !== "subjects" || context.state.keys.subject).map(([name, title]) => h("label", null, h("input", { type: "radio", name: "way", value: name, checked: name === "ids", onchange: () => choose(name) }), h("span", null, title))),
  );
  let lines = [];

  function choose(name) {
    way.now = name;
    typed.hidden = name === "file";
    fromFile.hidden = name !== "file";
    write(label, name === "subjects" ? "Subjects: everything about these people" : "Ids of records");
    write(note, "One a line, or with commas between them.");
    write(said, "");
  }
  async function readFile() {
    write(said, "");
    const [chosen] = file.files;
    lines = [];
    if (!chosen) return;
    if (chosen.size > 5e6) return write(said, "The file has more than 5 MB: use the program or the API for so many.");
    lines = names((await chosen.text()).replace(/^\ufeff/, ""), /\r?\n/);
    say(`${chosen.name}: ${plural(lines.length, "line")}`);
  }
  const names = (content, between) => [...new Set(content.split(between).map((each) => each.trim()).filter(Boolean))];

  async function submit(event) {
    event.preventDefault();
    write(said, "");
    const isFile = way.now === "file";
    const found = isFile ? lines : names(text.value, /[\n,;]+/);
    const what = isFile ? kind.value : way.now;
    if (!found.length) {
      write(said, isFile ? "Choose a file with at least one line." : "Enter at least one.");
      (isFile ? file : text).focus();
      return;
    }
    const noun = what === "ids" ? "record" : "subject";
    const first = found.slice(0, 5).join(", ") + (found.length > 5 ? ` and ${count(found.length - 5)} more` : "");
    const content = [
      h("p", null, h("strong", null, `${plural(found.length, noun)}: `), first),
      h("p", null, what === "subjects" ? "Every record of these people is erased, and the models that learned from them are trained again." : "These records are erased, and the models that learned from them are trained again.", " This cannot be undone."),
    ];
    if (!(await confirm(`Delete ${plural(found.length, noun)}?`, content, "Delete"))) return;
    button.disabled = true;
    try {
      const key = crypto.getRandomValues(new Uint8Array(16)).reduce((all, each) => all + each.toString(16).padStart(2, "0"), "");

      const kind = context.state.keys[KEYS[what]];
      const body = `{"delete":{"${what}":[${found.map((each) => asKey(each, kind)).join()}]}}`;
      const made = await ask("/v1/updates", { method: "POST", body, headers: { "Idempotency-Key": key } });
      toast(made.state === "applied" ? "Deleted" : "Accepted: it will be applied");
      text.value = "";
      file.value = "";
      lines = [];
      done();
      context.refresh();
    } catch (error) {
      write(said, error.message);
    } finally {
      button.disabled = false;
    }
  }
  fill(body, h("form", { class: "stack", onsubmit: submit, novalidate: true }, tabs, typed, fromFile, said, h("div", { class: "row end" }, button)));
  choose("ids");
  return { root };
}
