"use strict";
// Which runs the table shows, in which order, and which are laid over each other at first.

// name: [class of its cells, what it is sorted by, whether the greatest comes first]
const RUN_COLUMNS = {
  run: ["", (run) => run.name, false],
  state: ["", (run) => run.state, false],
  steps: ["", (run) => run.steps, true],
  "mean return": ["num", (run) => run.mean_return, true],
  "steps/s": ["num", (run) => run.steps_per_second, true],
  "return over time": [""],
  time: ["num", (run) => run.seconds, true],
};

/** Whether a run has all of these words in its name, state, parts or seed. */
function matches(run, text) {
  const about = [run.name, run.state, run.architecture, run.algorithm, run.env, `seed ${run.seed}`].join(" ").toLowerCase();
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => about.includes(word));
}

/** The runs sorted by a column, those without a value last; in their own order where there is no column. */
function inOrder(list, { by, down }) {
  const value = RUN_COLUMNS[by]?.[1],
    missing = (run) => value(run) === null || value(run) === undefined;
  if (!value) return list;
  const compare = (a, b) =>
    typeof value(a) === "string" ? value(a).localeCompare(value(b), "en", { numeric: true }) : value(a) - value(b);
  return [...list].sort((a, b) => missing(a) - missing(b) || (missing(a) ? 0 : (down ? -1 : 1) * compare(a, b)));
}

/** The first runs of the list that have the environment of the first: their returns can be compared. */
const comparable = (list, most) => list.filter((run) => run.env === list[0].env).slice(0, most);

/** The trials of a search, the best first. */
const bestFirst = (trials) =>
  [...trials].sort(
    (a, b) =>
      (b.state === "finished") - (a.state === "finished") || (b.value ?? -Infinity) - (a.value ?? -Infinity) || a.number - b.number,
  );
