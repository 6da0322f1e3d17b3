"use strict";
// One run: key figures, and a tab for each side of it.

const MAIN_CHARTS = ["mean_return", "steps_per_second"];
const MACHINE = ["cores_busy", "gpu_utilization", "gpu_memory_gb", "gpu_watts"].map((name) => `machine/${name}`);
const COUNTERS = ["steps", "frames", "learned", "reused", "updates", "seconds", "episodes"];

function tabsOf(key) {
  const names = Object.keys(rowsOf(key)),
    detail = detailOf(key);
  const gossips = names.some((name) => name.startsWith("gossip/"));
  const many = (detail.status?.members || []).length > 1 || (detail.status?.hosts || []).length > 0;
  return [
    ["training", "Training"],
    ["speed", "Speed"],
    gossips && ["gossip", "Gossip"],
    many && ["hosts", "Hosts and members"],
    ["values", "Distributions"],
    ["agent", "Agent, live"],
    ["log", "Log"],
    ["settings", "Settings"],
  ].filter(Boolean);
}

function oneRun(key, tab) {
  const run = () => runs.get(key) || { name: key, state: "", spark: [] };
  const head = h("div", { class: "head" }),
    tiles = h("div", { class: "tiles" }),
    tabs = tabsOf(key),
    at = tabs.some(([name]) => name === tab) ? tab : "training";
  widgets.push({
    update: () => {
      updateHead(head, run(), detailOf(key));
      updateTiles(tiles, run(), key);
    },
  });
  const move = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
      place = tabs.findIndex(([name]) => name === at);
    if (!step) return;
    location.hash = to(key, tabs[(place + step + tabs.length) % tabs.length][0]);
    setTimeout(() => document.querySelector("[role=tab][aria-selected=true]")?.focus(), 60);
  };
  const bar = h(
    "div",
    { class: "tabs", role: "tablist", "aria-label": "Sides of this run", onkeydown: move },
    tabs.map(([name, text]) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${name}`,
          "aria-selected": String(name === at),
          "aria-controls": "panel",
          tabindex: name === at ? 0 : -1,
          onclick: () => {
            location.hash = to(key, name);
          },
        },
        text,
      ),
    ),
  );
  return [
    head,
    tiles,
    bar,
    h("div", { role: "tabpanel", id: "panel", "aria-labelledby": `tab-${at}` }, PANELS[at](key)),
  ];
}

function updateHead(head, run, detail) {
  const why = run.activity || run.ended;
  fill(
    head,
    h("h1", {}, run.name),
    h("span", { class: `chip ${run.state}`, title: STATES[run.state] }, run.state || "loading"),
    h(
      "span",
      { class: "sub" },
      [run.architecture, run.algorithm, run.env, isNumber(run.seed) && `seed ${run.seed}`].filter(Boolean).join(" · "),
    ),
    why && h("span", { class: "sub" }, why),
  );
}

function updateTiles(tiles, run, key) {
  const { now, status = {} } = detailOf(key),
    share = run.total ? Math.min(1, (run.steps || 0) / run.total) : 0,
    live = run.state === "running",
    evaluation = detailOf(key).evaluations.at(-1);
  const members = (status.members || []).filter((member) => member.learns !== false),
    away = (status.hosts || []).filter((host) => !host.up).length;
  const tile = (name, value, more, ...rest) =>
    h(
      "div",
      { class: "tile" },
      h("span", {}, name),
      h("b", {}, value),
      h("span", { class: "what" }, h("span", {}, more || " ")),
      ...rest,
    );
  fill(
    tiles,
    tile(
      "steps",
      number(run.steps),
      `of ${compact(run.total)}, ${percent(share)}`,
      h("div", { class: "progress" }, h("i", { css: { width: `${100 * share}%` } })),
    ),
    tile(
      "mean return",
      number(run.mean_return),
      `last ${Math.min(100, run.episodes || 0)} of ${number(run.episodes)} episodes`,
    ),
    evaluation &&
      tile(
        "evaluation",
        number(evaluation.mean_return),
        `${evaluation.episodes} games, ${evaluation.protocol}, at step ${number(evaluation.steps)}`,
      ),
    tile(
      "steps per second",
      number(Math.round(run.steps_per_second ?? NaN)),
      live && isNumber(status.steps_per_second_60s)
        ? `over the run; ${number(Math.round(status.steps_per_second_60s))} over 60 s`
        : `${compact(((run.frames || 0) / (run.steps || 1)) * (run.steps_per_second || 0))} frames/s`,
    ),
    tile(
      "time",
      duration(run.seconds),
      live && isNumber(run.left_seconds) ? `${duration(run.left_seconds)} left` : live ? "" : "in all",
    ),
    members.length > 1 &&
      tile(
        "members",
        String(members.filter((member) => member.up).length),
        away ? `${away} of ${status.hosts.length} hosts away` : live ? "all present" : "",
      ),
    isNumber(now["gossip/distance"]) &&
      tile(
        "members apart",
        number(now["gossip/distance"]),
        isNumber(now["gossip/bound"])
          ? `at most ${number(now["gossip/bound"])}`
          : "no bound: messages have a share of the parameters",
      ),
  );
}

/** The parts that time is spent in; what none of them accounts for comes last. */
const partsOf = (row) =>
  Object.keys(row)
    .filter((name) => name.startsWith("time/"))
    .sort((a, b) => (a === "time/other") - (b === "time/other") || a.localeCompare(b));
const partMark = (name, i) => (name === "time/other" ? "--soft" : colour(i));

/** The bar that is divided into the shares of the members' time, and what each part could do alone. */
function timeShares(key) {
  const bar = h("div", { class: "share", role: "img" }),
    body = h("tbody");
  const node = h(
    "section",
    { class: "card" },
    h(
      "header",
      { class: "head" },
      h("h2", {}, "Where the time goes"),
      help(
        "Shares of the members' time in all sessions of the run. Alone: how many steps per second there would be if only this part took time; the least of them is what holds the others up. Where actors and learners are apart, parts overlap, and there are no such figures.",
      ),
    ),
    bar,
    h(
      "table",
      { class: "parts" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["part", "share", "alone, steps/s"].map((name, i) => h("th", { scope: "col", class: i ? "num" : "" }, name)),
        ),
      ),
      body,
    ),
  );
  const update = () => {
    const { now, status = {} } = detailOf(key),
      run = runs.get(key) || {},
      apart = (status.members || []).some((member) => member.learns === false),
      alone = (name, share) => !apart && !/^time\/other$|waits?$/.test(name) && share > 0.001,
      parts = partsOf(now).map((name) => [name, now[name] || 0]);
    bar.setAttribute("aria-label", parts.map(([name, share]) => `${words(name)} ${percent(share)}`).join(", "));
    fill(
      bar,
      parts.map(([name, share], i) =>
        h("i", {
          title: `${words(name)} ${percent(share)}`,
          css: { width: `${100 * share}%`, "--mark": `var(${partMark(name, i)})` },
        }),
      ),
    );
    fill(
      body,
      parts.map(([name, share], i) =>
        h(
          "tr",
          { css: { "--mark": `var(${partMark(name, i)})` } },
          h("td", {}, h("i", { class: "dot" }), words(name)),
          h("td", { class: "num" }, percent(share)),
          h(
            "td",
            { class: "num" },
            alone(name, share) ? number(Math.round(run.steps_per_second / share)) : "–",
          ),
        ),
      ),
    );
  };
  return { node, update };
}
