"use strict";
// The searches in the folder: their trials, the best first, and the command that trains with the best values.

const LISTED = 15; // trials

/** A card for each search. */
function searchCards() {
  const node = h("div");
  let drawn = null;
  const update = () => {
    if (drawn === searches) return;
    drawn = searches;
    fill(node, Object.entries(searches).map(([key, content]) => searchCard(key, content)));
  };
  return { node, update };
}

function searchCard(key, { definition, trials }) {
  const ordered = bestFirst(trials),
    names = [...new Set(trials.flatMap((trial) => Object.keys(trial.options)))],
    best = ordered[0]?.state === "finished" ? ordered[0] : null;
  const heads = ["trial", "state", "return", ...names.map((name) => name.replace(/_/g, "-"))];
  const row = (trial) =>
    h(
      "tr",
      {},
      h("td", {}, h("a", { href: to(firstRun(key, definition, trial)) }, String(trial.number))),
      h("td", {}, h("span", { class: `chip ${trial.state}`, title: trial.reason }, trial.state)),
      h("td", { class: "num" }, number(trial.value)),
      names.map((name) => h("td", { class: "num" }, setting(trial.options[name]))),
    );
  return h(
    "section",
    { class: "card searches" },
    h(
      "header",
      { class: "head" },
      h("h2", {}, `Search ${key === "." ? "" : key}`),
      h("span", { class: "sub" }, `${definition.composition} on ${definition.env}, ${trials.length} trials`),
    ),
    best && h("p", {}, "Best: ", h("code", {}, best.command)),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, heads.map((name, i) => h("th", { scope: "col", class: i > 1 ? "num" : "" }, name)))),
        h("tbody", {}, ordered.slice(0, LISTED).map(row)),
      ),
    ),
    ordered.length > LISTED && h("p", { class: "sub" }, `and ${ordered.length - LISTED} more in search.json`),
  );
}

const setting = (value) => (isNumber(value) ? number(value) : String(value ?? "–"));

/** The key of a trial's first run. */
const firstRun = (key, definition, trial) =>
  `${key === "." ? "" : `${key}/`}${trial.directory}/seed-${definition.seeds[0]}`;
