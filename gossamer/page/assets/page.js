"use strict";
// What is known of the runs, the connection to the server, and which view is shown.

const saved = JSON.parse(document.getElementById("data").textContent);
const runs = new Map(),
  details = new Map(),
  moments = new Map();
let searches = {}; // of the folder: key -> content of search.json
const main = document.getElementById("main"),
  link = document.getElementById("link");
let chosen = null; // runs that are laid over each other; null: none was ticked yet
const SHOWN = 8; // of them at most, as there are colours; one more takes the place of the first
let widgets = [],
  shownAt = "",
  source = null,
  address = "",
  due = false,
  retry = 0;

const detailOf = (key) => details.get(key) || { rows: { columns: {} }, episodes: { columns: {} }, evaluations: [], now: {}, log: [] };
const isRunning = (key) => runs.get(key)?.state === "running";

// ---- data

function takeRuns(message) {
  if (message.reset) runs.clear();
  for (const summary of message.changed) runs.set(summary.key, summary);
  for (const key of message.gone) runs.delete(key);
}

function append(table, news) {
  const length = news.from;
  for (const [name, values] of Object.entries(news.columns)) {
    const column = (table.columns[name] || []).slice(0, length);
    while (column.length < length) column.push(null);
    table.columns[name] = column.concat(values);
  }
  table.stride = news.stride;
}

function takeRun(message) {
  const before = message.reset ? detailOf() : detailOf(message.key);
  const { rows, episodes, log, reset, ...rest } = message;
  const detail = { ...before, ...rest, log: before.log.concat(log).slice(-500) };
  append(detail.rows, rows);
  append(detail.episodes, episodes);
  details.set(message.key, detail);
}

/** The rows of a run with the newest one, which metrics.jsonl may not have yet. */
function rowsOf(key) {
  const {
    rows: { columns },
    now,
  } = detailOf(key);
  if (!(now.seconds > (last(columns.seconds) ?? -1))) return columns;
  const names = new Set([...Object.keys(columns), ...Object.keys(now)]),
    length = (columns.steps || []).length;
  return Object.fromEntries(
    [...names].map((name) => [
      name,
      (columns[name] || new Array(length).fill(null)).concat(isNumber(now[name]) ? now[name] : null),
    ]),
  );
}

// ---- connection

const LOST = "connection lost, trying again",
  BUSY = "too many browsers watch already, trying again",
  NEW_TOKEN = "the server has restarted: open the address that was printed, it has a new token";

function wantedAddress() {
  const { key, tab } = route(),
    shown = key !== null ? [key] : selected();
  const query = shown.map((each) => `run=${encodeURIComponent(each)}`);
  if (key !== null && tab === "agent") query.push(`play=${encodeURIComponent(key)}`);
  return `events?${query.join("&")}`;
}

function connect(force = false) {
  if (saved) return;
  if (document.hidden) {
    if (source) source.close();
    source = null;
    address = "";
    return;
  }
  if (!force && address === wantedAddress()) return;
  if (source) source.close();
  clearTimeout(retry);
  address = wantedAddress();
  source = new EventSource(address);
  const on = (name, take) =>
    source.addEventListener(name, (event) => {
      take(JSON.parse(event.data));
      schedule();
    });
  source.onopen = () => tell("live", "live");
  on("runs", takeRuns);
  on("run", takeRun);
  on("searches", (found) => (searches = found));
  on("play", (moment) => moments.set(moment.key, moment));
  on("end", () => lose("the server has ended, trying again"));
  source.onerror = () => (source.readyState === EventSource.CLOSED ? refused() : tell("lost", LOST));
}

/** The server sends no events. An event source does not tell why, so ask for the status. */
async function refused() {
  const asked = source,
    answer = await fetch(address, { method: "HEAD" }).catch(() => null);
  if (source === asked) lose({ 401: NEW_TOKEN, 503: BUSY }[answer?.status] || LOST);
}

function lose(text) {
  source.close();
  tell("lost", text);
  clearTimeout(retry);
  retry = setTimeout(() => connect(true), 2000);
}

function tell(kind, text) {
  if (link.textContent !== text) {
    link.className = `link ${kind}`;
    link.textContent = text;
  }
}

// ---- routes

function route() {
  const [, place, key, tab] = location.hash.split("/");
  return place === "run" ? { key: decodeURIComponent(key || ""), tab: tab || "training" } : { key: null, tab: "" };
}

const to = (key, tab) => `#/run/${encodeURIComponent(key)}${tab ? `/${tab}` : ""}`;
const newestFirst = () =>
  [...runs.values()].sort(
    (a, b) => (b.state === "running") - (a.state === "running") || b.started - a.started || a.key.localeCompare(b.key),
  );

function selected() {
  const known = (chosen || comparable(newestFirst(), SHOWN).map((run) => run.key)).filter((key) => runs.has(key));
  return known.slice(0, SHOWN);
}

function schedule() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    draw();
  });
}

function draw() {
  const { key, tab } = route();
  if (runs.size === 1 && key === null && !location.hash) {
    location.replace(to([...runs.keys()][0]));
    return;
  }
  connect();
  const at = `${key} ${tab} ${
    key !== null
      ? runs.has(key) &&
        tabsOf(key)
          .map(([name]) => name)
          .join()
      : ""
  }`;
  if (at !== shownAt) {
    shownAt = at;
    build(key, tab);
  }
  for (const widget of widgets) widget.update();
}

function build(key, tab) {
  for (const widget of widgets) if (widget.destroy) widget.destroy();
  widgets = [];
  const crumbs = document.getElementById("crumbs");
  fill(crumbs, key === null ? "all runs" : runs.get(key)?.name || key);
  document.title = key === null ? "Gossamer" : `${runs.get(key)?.name || key} – Gossamer`;
  fill(main, key === null ? overview() : oneRun(key, tab));
}

const add = (...made) => {
  widgets.push(...made);
  return made.map((widget) => widget.node);
};

// ---- light and dark, and the start

document
  .getElementById("theme")
  .addEventListener("click", () => setTheme(!document.documentElement.classList.contains("dark"), true));
function setTheme(dark, keep) {
  document.documentElement.classList.toggle("dark", dark);
  document.getElementById("theme").textContent = dark ? "☀ light" : "☾ dark";
  if (keep)
    try {
      localStorage.setItem("gossamer-theme", dark ? "dark" : "light");
    } catch {
      /* no storage for files in some browsers */
    }
  schedule();
}
function firstTheme() {
  try {
    return localStorage.getItem("gossamer-theme");
  } catch {
    return null;
  }
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
prefersDark.addEventListener("change", (event) => {
  if (!firstTheme()) setTheme(event.matches, false);
});
addEventListener("hashchange", () => {
  schedule();
  main.focus({ preventScroll: true });
});
document.addEventListener("visibilitychange", () => {
  connect();
  if (!document.hidden) schedule();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.getElementById("tip").hidden = true;
});

setTheme(firstTheme() ? firstTheme() === "dark" : prefersDark.matches, false);
if (saved) {
  takeRuns(saved.runs);
  searches = saved.searches;
  saved.run.forEach(takeRun);
  tell("", "saved page");
}
schedule();
