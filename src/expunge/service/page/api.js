// The service, asked with the key that the person entered. The key is kept in this tab's session storage and nowhere
// else; no answer is kept by the browser.

const NAME = "expunge-key";
export const keyOf = () => sessionStorage.getItem(NAME);
export const keep = (key) => sessionStorage.setItem(NAME, key);
export const forget = () => sessionStorage.removeItem(NAME);

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the service answered ${status}`);
    this.status = status;
    this.problem = problem;
    const where = (problem.errors ?? []).map((each) => each.field).filter(Boolean);
    this.detail = where.length && !where.every((each) => this.message.includes(each)) ? `See: ${where.join(", ")}` : "";
  }
}

export class Silent extends Error {
  constructor() {
    super("The service does not answer.");
  }
}

async function send(path, { method = "GET", data, body, headers = {}, accept = "application/json", signal } = {}) {
  if (data !== undefined) body = JSON.stringify(data);
  let answer;
  try {
    answer = await fetch(path, {
      method,
      body,
      signal,
      cache: "no-store",
      credentials: "omit",
      headers: {
        Accept: accept,
        Authorization: `Bearer ${keyOf()}`,
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Silent();
  }
  if (answer.ok) return answer;
  let problem = { title: answer.statusText };
  try {
    problem = await answer.json();
  } catch {
    // a proxy's page is no problem document
  }
  if (answer.status === 401) dispatchEvent(new CustomEvent("locked", { detail: problem.detail }));
  throw new Refused(answer.status, problem);
}

export const ask = async (path, options) => (await send(path, options)).json();
export const text = async (path, options) => (await send(path, options)).text();

// Show a page of the service in a tab of its own. The browser cannot send the key when it opens an address, so the page
// is fetched and shown as it is.
export async function open(path, options) {
  const tab = window.open("about:blank", "_blank");
  try {
    const page = await text(path, { ...options, accept: "text/html" });
    const address = URL.createObjectURL(new Blob([page], { type: "text/html" }));
    if (tab) tab.location.replace(address);
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  } catch (error) {
    tab?.close();
    throw error;
  }
}

export async function download(path, name, options) {
  const content = await (await send(path, options)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// Ask again and again while the tab is looked at. Failures make it slower, and never stop it.
export function poll(action, milliseconds) {
  let timer = null;
  let ended = false;
  let failures = 0;
  const turn = async () => {
    clearTimeout(timer);
    if (ended) return;
    if (!document.hidden) {
      try {
        await action();
        failures = 0;
      } catch (error) {
        if (error.status === 401) return;
        failures += 1;
      }
    }
    if (!ended) timer = setTimeout(turn, Math.min(milliseconds * 2 ** failures, 20000));
  };
  const look = () => !document.hidden && turn();
  document.addEventListener("visibilitychange", look);
  turn();
  return {
    now: turn,
    stop() {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    },
  };
}
