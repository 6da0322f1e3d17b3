"use strict";
// All runs: a table, and the ticked ones laid over each other.

const order = { by: "", down: false }; // the column that the table is sorted by; none: the newest runs first
let sought = ""; // words that runs must have

function overview() {
  const body = h("tbody"),
    heads = Object.entries(RUN_COLUMNS).map(([name, column]) => columnHead(name, ...column));
  const table = h(
    "table",
    { class: "runs" },
    h("caption", { class: "sr" }, "All runs; tick those to compare"),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, h("span", { class: "sr" }, "compare")),
        heads,
      ),
    ),
    body,
  );
  const none = h("p", { class: "none" });
  const find = h("input", {
    type: "search",
    id: "find",
    placeholder: "find runs",
    "aria-label": "Find runs by name, environment, architecture, algorithm, state or seed",
    value: sought,
    oninput: (event) => {
      sought = event.target.value.trim();
      schedule();
    },
  });
  widgets.push({
    update: () => {
      updateRows(body);
      for (const head of heads) updateHeadOf(head);
      none.hidden = body.children.length > 0;
      none.textContent = runs.size ? "No run has these words." : "No runs here yet: they appear as soon as one starts.";
    },
  });
  const metric = h("select", { onchange: schedule });
  const across = (name, more = {}) =>
    chart({
      name: about(name)[0],
      unit: about(name)[1],
      text: about(name)[2],
      height: 260,
      ...more,
      lines: () =>
        selected().map((key, i, shown) => {
          const rows = rowsOf(key);
          const value = name === "steps_per_second" ? runs.get(key)?.[name] : undefined; // as in the table
          return { label: labelOf(key, shown), mark: colour(i), x: rows[view.x] || [], y: rows[name] || [], value };
        }),
    });
  const others = chart({
    name: "Another figure",
    height: 260,
    lines: () =>
      selected().map((key, i, shown) => {
        const rows = rowsOf(key);
        return {
          label: labelOf(key, shown),
          mark: colour(i),
          x: rows[view.x] || [],
          y: rows[metric.value] || [],
        };
      }),
  });
  const refresh = others.update;
  others.update = () => {
    addOptions(metric);
    refresh();
  };
  others.node
    .querySelector("h3")
    .replaceChildren(h("label", {}, h("span", { class: "sr" }, "Another figure: "), metric));
  return [
    h("h1", { class: "sr" }, "Runs"),
    add(searchCards()),
    h("section", { class: "card" }, h("div", { class: "find" }, find), h("div", { class: "scroll" }, table), none),
    h("div", { css: { height: "16px" } }),
    controls(schedule),
    h("div", { class: "grid" }, add(across("mean_return"), across("steps_per_second", { least: 0 }), others)),
  ];
}

/** The head of a column; a click sorts by it, another one turns the order round, a third one ends it. */
function columnHead(name, kind, value, down) {
  if (!value) return h("th", { scope: "col", class: kind }, name);
  const sort = () => {
    if (order.by !== name) Object.assign(order, { by: name, down });
    else if (order.down === down) order.down = !down;
    else order.by = "";
    schedule();
  };
  return h(
    "th",
    { scope: "col", class: kind, "data-by": name },
    h("button", { type: "button", class: "sort", onclick: sort }, name),
  );
}

function updateHeadOf(head) {
  const name = head.dataset.by;
  if (!name) return;
  if (order.by === name) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
  else head.removeAttribute("aria-sort");
}

/** The name of a run; with its environment where the selected runs differ in it, as their returns cannot be compared. */
function labelOf(key, shown) {
  const { name = key, env } = runs.get(key) || {},
    envs = new Set(shown.map((each) => runs.get(each)?.env));
  return envs.size > 1 && env ? `${name} (${env})` : name;
}

/** The figures that one of the selected runs has. */
function addOptions(metric) {
  const known = new Set([...metric.options].map((each) => each.value)),
    skip = new Set([...COUNTERS, ...MAIN_CHARTS]);
  for (const key of selected())
    for (const name of Object.keys(rowsOf(key))) {
      if (!known.has(name) && !skip.has(name)) {
        known.add(name);
        metric.append(h("option", { value: name, selected: name === "entropy" }, about(name)[0]));
      }
    }
}

const drawn = new WeakMap(); // row of the table -> what was known of its run when its figures were made

/** Bring the rows up to date. What can be clicked or has the focus stays in its place while figures change. */
function updateRows(body) {
  const known = new Map([...body.children].map((row) => [row.dataset.run, row])),
    shown = selected();
  const listed = inOrder(newestFirst(), order).filter((run) => matches(run, sought));
  const rows = listed.map((run) => {
    const row = known.get(run.key) || runRow(run),
      place = shown.indexOf(run.key);
    row.style.setProperty("--mark", place >= 0 ? `var(${colour(place)})` : "var(--accent)");
    row.querySelector("input").checked = place >= 0;
    if (drawn.get(row) !== run) {
      drawn.set(row, run); // a run of which something is new is another object
      for (const cell of [...row.children].slice(2)) cell.remove();
      row.append(...figures(run));
    }
    return row;
  });
  if (rows.length === body.children.length && rows.every((row, i) => row === body.children[i])) return;
  const focused = document.activeElement?.id;
  fill(body, rows);
  if (focused) document.getElementById(focused)?.focus();
}

/** A row of the table, without its figures. */
function runRow(run) {
  const tick = (event) => {
    chosen = event.target.checked ? [...selected(), run.key].slice(-SHOWN) : selected().filter((key) => key !== run.key);
    schedule();
  };
  return h(
    "tr",
    { "data-run": run.key },
    h(
      "td",
      {},
      h("input", {
        type: "checkbox",
        id: `tick ${run.key}`,
        "aria-label": `Compare ${run.name}`,
        onchange: tick,
      }),
    ),
    h(
      "td",
      { class: "name" },
      h("a", { href: to(run.key), id: `open ${run.key}` }, run.name),
      h(
        "div",
        { class: "sub" },
        [run.architecture, run.algorithm, run.env, isNumber(run.seed) && `seed ${run.seed}`].filter(Boolean).join(" · "),
      ),
    ),
  );
}

/** The cells that change while a run trains. */
function figures(run) {
  const share = run.total ? Math.min(1, (run.steps || 0) / run.total) : 0;
  return [
    h("td", { class: "state" }, h("span", { class: `chip ${run.state}`, title: STATES[run.state] }, run.state)),
    h(
      "td",
      { class: "steps" },
      `${compact(run.steps)} `,
      h("span", { class: "sub" }, `of ${compact(run.total)}`),
      h("div", { class: "progress" }, h("i", { css: { width: `${100 * share}%` } })),
    ),
    h("td", { class: "num return", "data-what": "return" }, number(run.mean_return)),
    h("td", { class: "num rate", "data-what": "steps/s" }, number(Math.round(run.steps_per_second ?? NaN))),
    h("td", { class: "spark" }, sparkline(run.spark)),
    h(
      "td",
      { class: "num time" },
      duration(run.seconds),
      run.state === "running" &&
        isNumber(run.left_seconds) &&
        h("div", { class: "sub" }, `${duration(run.left_seconds)} left`),
    ),
  ];
}
