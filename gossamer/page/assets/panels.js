"use strict";
// The sides of one run: what stands below each tab.

const lineOf = (key, name, mark = "--c0", label = name) => {
  const rows = rowsOf(key);
  return { label, mark, x: rows[view.x] || [], y: rows[name] || [] };
};
const plain = (key, name, more = {}) =>
  chart({
    name: about(name)[0],
    unit: about(name)[1],
    text: about(name)[2],
    lines: () => [lineOf(key, name)],
    ...more,
  });

/** Whether a figure has a chart of its own below the return: those of other tabs have not. */
const hasChart = (name) =>
  (!name.includes("/") || /^(episode|own|return)\//.test(name)) && !COUNTERS.includes(name) && !MAIN_CHARTS.includes(name);

/** The games that have ended episodes. */
const gamesOf = (key) =>
  Object.keys(detailOf(key).episodes.columns)
    .filter((name) => name.startsWith("return/"))
    .map((name) => name.slice("return/".length));

/** Returns of one game: episodes, their mean, evaluations. `game` null: of the run, whose episodes are shown if all are
 * of one game. */
function returnLines(key, name, game) {
  const { episodes, evaluations } = detailOf(key),
    shown = game ?? (gamesOf(key).length === 1 ? gamesOf(key)[0] : null),
    scale = view.x === "frames" ? (rowsOf(key).frames || [0])[0] / ((rowsOf(key).steps || [1])[0] || 1) : 1,
    at = (steps, seconds) => (view.x === "seconds" ? seconds : steps * scale),
    lines = [{ ...lineOf(key, name), label: "mean of 100" }];
  if (shown !== null) {
    const { steps = [], seconds = [], [`return/${shown}`]: y = [] } = episodes.columns;
    lines.unshift({ label: "episodes", mark: "--c6", x: steps.map((count, i) => at(count, seconds[i])), y, dots: true });
  }
  const evaluated = evaluations
    .map((each) => [at(each.steps, each.seconds), (game === null ? each : each.games?.[game])?.mean_return])
    .filter(([, mean]) => isNumber(mean));
  if (evaluated.length)
    lines.push({ label: "evaluations", mark: "--c1", x: evaluated.map(([x]) => x), y: evaluated.map(([, mean]) => mean) });
  return lines;
}

/** The chart of a figure. */
const chartOf = (key, name) =>
  plain(key, name, name.startsWith("return/") ? { lines: () => returnLines(key, name, name.slice("return/".length)) } : {});

const PANELS = {
  training(key) {
    const wide = chart({
      name: "Return",
      height: 300,
      text: `${about("mean_return")[2]} Dots: single episodes, spread evenly between two reports; of several games in the chart of each.`,
      lines: () => returnLines(key, "mean_return", null),
    });
    const names = Object.keys(rowsOf(key)).filter(hasChart);
    const grid = h(
      "div",
      { class: "grid" },
      names.map((name) => add(chartOf(key, name))),
    );
    const more = {
      update() {
        // figures that come later: an algorithm reports its losses after its first update
        for (const name of Object.keys(rowsOf(key)))
          if (hasChart(name) && !names.includes(name)) {
            names.push(name);
            grid.append(...add(chartOf(key, name)));
          }
      },
    };
    const made = [controls(schedule), ...add(wide), h("div", { css: { height: "14px" } }), grid];
    widgets.push(more);
    return made;
  },
  speed(key) {
    const rates = chart({
      name: "Steps per second, by what is done with them",
      unit: "steps/s",
      least: 0,
      height: 260,
      text: "Acted: by the environments. Learned: used for an update, each counted once. Reused: learned from once more.",
      lines: () => {
        const rows = rowsOf(key),
          seconds = rows.seconds || [],
          line = (name, mark, label) => ({ label, mark, x: rows[view.x] || [], y: rateOf(rows[name], seconds) });
        return [
          line("steps", "--c0", "acted"),
          line("learned", "--c2", "learned"),
          ...(last(rows.reused) > 0 ? [line("reused", "--c1", "reused")] : []),
        ];
      },
    });
    const updates = chart({
      name: "Updates per second",
      unit: "optimiser steps/s",
      least: 0,
      text: "Optimiser steps of all members together.",
      lines: () => {
        const rows = rowsOf(key);
        return [{ label: "updates", mark: "--c0", x: rows[view.x] || [], y: rateOf(rows.updates, rows.seconds || []) }];
      },
    });
    const shares = chart({
      name: "Where the time goes, over the run",
      unit: "share of the members' time",
      least: 0,
      text: "Mean over all sessions of the run.",
      lines: () => partsOf(rowsOf(key)).map((name, i) => lineOf(key, name, partMark(name, i), words(name))),
    });
    const lags = ["policy_lag_mean", "queue", "gradient_staleness_mean", "dropped_stale", "dropped_outlier", "dropped_lost", "dropped_replaced", "stored", "drawn", "lost", ...MACHINE].filter((name) => name in rowsOf(key));
    return [
      controls(schedule),
      h(
        "div",
        { class: "wide" },
        h("div", { class: "stack" }, add(rates, shares)),
        h(
          "div",
          { class: "stack" },
          add(timeShares(key), updates, ...lags.map((name) => plain(key, name, { least: 0 }))),
        ),
      ),
    ];
  },
  gossip(key) {
    const distance = chart({
      name: "Distance of members from their mean, and its bound",
      log: true,
      height: 280,
      text: `${about("gossip/distance")[2]} ${about("gossip/bound")[2]}`,
      lines: () => [
        { ...lineOf(key, "gossip/bound", "--c1", "bound"), dash: [6, 4] },
        lineOf(key, "gossip/distance", "--c0", "distance"),
      ],
    });
    const staleness = chart({
      name: "Staleness of messages",
      unit: "iterations",
      text: about("gossip/staleness_mean")[2],
      lines: () => [
        lineOf(key, "gossip/staleness_max", "--c1", "greatest"),
        lineOf(key, "gossip/staleness_mean", "--c0", "mean"),
      ],
    });
    const kl = chart({
      name: "KL between the members' policies",
      unit: "nats",
      log: true,
      text: about("gossip/kl")[2],
      lines: () => [lineOf(key, "gossip/kl_max", "--c1", "greatest"), lineOf(key, "gossip/kl", "--c0", "mean")],
    });
    return [
      controls(schedule),
      h(
        "div",
        { class: "wide" },
        h(
          "div",
          { class: "stack" },
          add(distance),
          h(
            "div",
            { class: "grid" },
            add(
              staleness,
              kl,
              plain(key, "gossip/waited", { least: 0 }),
              plain(key, "gossip/gradient_cosine"),
              plain(key, "gossip/age_ms_median", { least: 0 }),
              plain(key, "gossip/mixed", { least: 0 }),
            ),
          ),
        ),
        h("div", { class: "stack" }, add(gossipGraph(() => detailOf(key)))),
      ),
    ];
  },
  hosts: (key) => [
    h(
      "div",
      { class: "wide" },
      h("div", { class: "stack" }, add(hostList(key))),
      h("div", { class: "stack" }, add(memberTable(key))),
    ),
  ],
  values(key) {
    const recent = (name) => () => binned((detailOf(key).episodes.columns[name] || []).slice(-1000).filter(isNumber));
    const games = gamesOf(key);
    const counts = (find) => () =>
      Object.entries(find(detailOf(key)) || {})
        .map(([value, count]) => ({ from: Number(value), to: Number(value), count }))
        .sort((a, b) => a.from - b.from);
    const traffic = (detail) =>
      detail.status?.traffic?.staleness ? detail.status.traffic : detail.gossip?.traffic || {};
    const made = [
      ...(games.length ? games : [""]).map((game) =>
        histogram({
          name: `Returns of the latest episodes${games.length > 1 ? ` of ${game}` : ""}`,
          unit: "",
          text: "Of the latest 1,000 episodes that the page keeps: of a long run every second one, every fourth one, and so on.",
          bins: () => recent(`return/${game || gamesOf(key)[0]}`)(),
        }),
      ),
      histogram({
        name: "Lengths of the latest episodes",
        unit: "steps",
        text: "Of the same episodes.",
        bins: recent("length"),
      }),
      histogram({
        name: "Policy lag",
        unit: "optimiser steps",
        text: "How old the policy that acted was when its trajectory was learned from; all trajectories of the run.",
        bins: counts((detail) => detail.status?.policy_lag || detail.result?.policy_lag?.trajectories),
      }),
      "gossip/mixed" in rowsOf(key) &&
        histogram({
          name: "Staleness of messages",
          unit: "iterations",
          text: "Of all averaged messages. Below zero: the sender was ahead.",
          bins: counts((detail) => traffic(detail).staleness),
        }),
      "gossip/mixed" in rowsOf(key) &&
        histogram({
          name: "Age of messages",
          unit: "",
          text: "Time between publishing and averaging, in powers of two.",
          bins: counts((detail) => traffic(detail).ages),
          label: (bin) => `${compact(2 ** bin.from)} ms`,
        }),
    ].filter(Boolean);
    return h("div", { class: "grid" }, add(...made));
  },
  agent(key) {
    if (saved) return h("p", { class: "none" }, "A saved page shows no agent: open the run with gossamer watch.");
    return add(agentView(() => moments.get(key) || { note: "waiting for the server" }));
  },
  log(key) {
    const box = h("pre", { class: "log card", tabindex: "0", "aria-label": "run.log, the newest lines last" });
    let told = -1;
    const update = () => {
      const lines = detailOf(key).log,
        end = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
      if (lines === told) return;
      told = lines;
      fill(
        box,
        lines.length
          ? lines.flatMap((line) => {
              const [, when, rest] = line.match(/^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (.*)$/) || [null, "", line];
              return [h("time", {}, when), `${when && "  "}${rest}\n`];
            })
          : "no log yet",
      );
      if (end) box.scrollTop = box.scrollHeight;
    };
    return add({ node: box, update });
  },
  settings(key) {
    const box = h("div", { class: "settings" });
    let told = [];
    return add({
      node: box,
      update() {
        const { config = {}, hosts = {} } = detailOf(key);
        if (told[0] === config && told[1] === hosts) return;
        told = [config, hosts];
        const groups = Object.entries(config).filter(([, value]) => value && typeof value === "object"),
          loose = Object.fromEntries(Object.entries(config).filter(([, value]) => typeof value !== "object"));
        fill(
          box,
          [
            ...groups,
            ["written by", loose],
            ...Object.entries(hosts).map(([name, info]) => [`host ${name}`, info]),
          ].map(([name, values]) => settingsCard(name, values)),
        );
      },
    });
  },
};

function settingsCard(name, values) {
  return h(
    "section",
    { class: "card" },
    h("h2", {}, title(name)),
    h(
      "table",
      {},
      h(
        "tbody",
        {},
        Object.entries(values).map(([option, value]) =>
          h(
            "tr",
            {},
            h("td", {}, words(option)),
            h(
              "td",
              {},
              value === null
                ? "–"
                : Number.isInteger(value)
                  ? number(value)
                  : typeof value === "object"
                    ? JSON.stringify(value)
                    : String(value),
            ),
          ),
        ),
      ),
    ),
  );
}
