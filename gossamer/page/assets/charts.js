"use strict";
// Charts: lines over steps, frames or seconds, drawn by uPlot. One widget is {node, update, destroy}.

const view = { x: "steps", smoothing: 0, plots: new Set() };
const ZOOM = { "+": 0.5, "=": 0.5, "-": 2 }; // key -> factor of the range that is shown
const X_AXES = { steps: "steps", frames: "frames", seconds: "time" };

/** Exponential mean that begins without a bias. */
function smoothed(values, weight) {
  let sum = 0,
    scale = 0;
  return values.map((value) => {
    if (!isNumber(value)) return value ?? null;
    sum = weight * sum + (1 - weight) * value;
    scale = weight * scale + (1 - weight);
    return sum / scale;
  });
}

/** Change of a counter per second, over about `span` rows. */
function rateOf(counts, seconds, span = 3) {
  return (counts || []).map((count, i) => {
    const j = Math.max(0, i - span),
      time = seconds[i] - seconds[j];
    return isNumber(count) && isNumber(counts[j]) && time > 0 && count >= counts[j] ? (count - counts[j]) / time : null;
  });
}

/** Rows as strictly increasing x: a resumed run may repeat one. */
function increasing(x, y) {
  const xs = [],
    ys = [];
  let most = -Infinity;
  for (let i = 0; i < x.length; i++)
    if (isNumber(x[i]) && x[i] > most) {
      xs.push((most = x[i]));
      ys.push(y[i] ?? null);
    }
  return [xs, ys];
}

/** Points that were reported at once, evenly between the report before and theirs. */
function between(x, y) {
  const xs = [],
    ys = [];
  let before = 0;
  for (let i = 0, end = 0; i < x.length; i = end) {
    for (end = i + 1; end < x.length && x[end] === x[i]; ) end++;
    if (!isNumber(x[i]) || x[i] <= before) continue; // a resumed run may repeat one
    for (let k = i; k < end; k++) {
      xs.push(before + ((x[i] - before) * (k - i + 1)) / (end - i));
      ys.push(y[k] ?? null);
    }
    before = x[i];
  }
  return [xs, ys];
}

const ticks = (u, values) => values.map((value) => (view.x === "seconds" ? duration(value) : compact(value)));

/**
 * A chart. `lines()` returns [{label, mark, x, y, dots, value}], `mark` being a CSS colour variable and
 * `value` what the legend shows while nothing is pointed at, in place of the newest.
 * Options: log (scale), unit, tall, least (the y axis reaches down to), keep (never smoothed).
 */
function chart({ name, text, unit = "", lines, log = false, height = 190, least = null, keep = false }) {
  const keys = h("div", { class: "keys" }),
    plot = h("div", { class: "plot", tabindex: "0", role: "img" });
  const node = h(
    "section",
    { class: "card chart" },
    h("header", {}, h("h3", {}, name, unit && h("span", { class: "sub" }, ` ${unit}`)), help(text), keys),
    plot,
  );
  let u = null,
    shown = [],
    made = "",
    zoomed = false;

  const key = (at) =>
    fill(
      keys,
      shown
        .filter((line) => !line.faint && !line.dots)
        .map((line) => {
          const value = at === null ? (line.value ?? last(line.y)) : line.y[at];
          return h(
            "span",
            { css: { "--mark": `var(${line.mark})` } },
            shown.length > 1 && h("i"),
            shown.length > 1 && `${line.label} `,
            h("b", {}, number(value)),
          );
        }),
      at !== null && h("span", {}, `at ${view.x === "seconds" ? duration(u.data[0][at]) : number(u.data[0][at])}`),
    );

  function options() {
    const axis = {
      stroke: css("--soft"),
      grid: { stroke: css("--faint"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    return {
      width: Math.max(120, plot.clientWidth),
      height,
      legend: { show: false },
      cursor: { sync: { key: "all", scales: ["x", null] }, points: { size: 6 }, drag: { x: true, y: false } },
      scales: {
        x: { time: false },
        y: { distr: log ? 3 : 1, range: log ? undefined : (_, low, high) => span(low, high, least) },
      },
      axes: [
        { ...axis, values: ticks, size: 26, space: 70 },
        { ...axis, size: 48, values: (_, values) => values.map((value) => (value === null ? "" : compact(value))) },
      ],
      series: [
        {},
        ...shown.map((line) => ({
          label: line.label,
          stroke: line.faint ? css(line.mark) + "44" : css(line.mark),
          width: line.faint ? 1 : 1.7,
          spanGaps: true,
          dash: line.dash,
          ...(line.dots
            ? { paths: () => null, points: { show: true, size: 3, width: 0, fill: css(line.mark) + "55" } }
            : { points: { show: line.single, size: 6, fill: css(line.mark) } }),
        })),
      ],
      hooks: {
        setCursor: [(self) => key(self.cursor.idx ?? null)],
        setScale: [(self, name) => name === "x" && describe(self.scales.x)],
        setSelect: [
          (self) => {
            zoomed = zoomed || self.select.width > 0;
          },
        ],
      },
    };
  }

  function span(low, high, floor) {
    if (!isNumber(low)) return [0, 1];
    const bottom = floor === null ? low : Math.min(low, floor),
      room = (high - bottom) * 0.06 || Math.abs(high) * 0.1 || 1;
    return [floor === null || low < floor ? bottom - room : floor, high + room];
  }

  function update() {
    const weight = keep ? 0 : view.smoothing;
    const found = lines()
      .map((line) => {
        const [x, y] = (line.dots ? between : increasing)(line.x, line.y);
        return { ...line, x, y: log ? y.map((v) => (v > 0 ? v : null)) : y };
      })
      .filter((line) => line.y.some(isNumber));
    shown = found.flatMap((line) =>
      weight > 0 && !line.dots
        ? [
            { ...line, faint: true },
            { ...line, y: smoothed(line.y, weight) },
          ]
        : [line],
    );
    const empty = !shown.length;
    if (empty) {
      destroy();
      fill(plot, h("p", { class: "none" }, "nothing recorded"));
      fill(keys);
      plot.removeAttribute("tabindex");
      return;
    }
    const data = shown.length === 1 ? [shown[0].x, shown[0].y] : uPlot.join(shown.map((line) => [line.x, line.y]));
    shown = shown.map((line, i) => ({ ...line, y: data[i + 1], single: line.y.filter(isNumber).length === 1 }));
    const wanted = JSON.stringify([
      shown.map((line) => [line.label, line.mark, line.faint, line.dots, line.single]),
      view.x,
      document.documentElement.className,
    ]);
    if (u && made === wanted) {
      u.setData(data, !zoomed);
      if (zoomed) u.redraw();
    } else {
      destroy();
      fill(plot);
      plot.tabIndex = 0;
      zoomed = false;
      u = new uPlot(options(), data, plot);
      u.root.addEventListener("dblclick", () => {
        zoomed = false;
        update();
      });
      made = wanted;
      watcher.observe(plot);
      view.plots.add(api);
    }
    if (!isNumber(u.cursor.idx) || u.cursor.left < 0) key(null);
    describe(u.scales.x);
  }

  /** For a screen reader. */
  function describe({ min, max }) {
    const range = zoomed ? ` ${number(min)} to ${number(max)}` : "";
    const newest = shown.filter((line) => !line.dots && !line.faint).slice(0, 6);
    const values = newest.map((line) => `${line.label} ${number(last(line.y))} ${unit}`).join(", ");
    const keys = "Arrow keys move along the curve, + and - zoom, Escape shows all.";
    plot.setAttribute("aria-label", `${name} over ${X_AXES[view.x]}${range}: ${values}. ${keys}`);
  }

  function destroy() {
    if (u) u.destroy();
    u = null;
    made = "";
    watcher.disconnect();
    view.plots.delete(api);
  }

  plot.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!u || event.ctrlKey || event.metaKey) return;
    if (move !== undefined) along(move);
    else if (event.key in ZOOM) zoom(ZOOM[event.key]);
    else if (event.key === "Escape") showAll();
    else return;
    event.preventDefault();
  });

  /** Move the cursor by about a hundredth of the points that are shown; at their edge, move the range. */
  function along(move) {
    const x = u.data[0],
      [from, to] = u.series[0].idxs;
    const step = Math.max(1, Math.round((to - from) / 100));
    const at = Math.max(0, Math.min(x.length - 1, (u.cursor.idx ?? x.length - 1) + step * move));
    const { min, max } = u.scales.x,
      shift = Math.max(0, x[at] - max) - Math.max(0, min - x[at]);
    if (shift) u.setScale("x", { min: min + shift, max: max + shift });
    u.setCursor({ left: u.valToPos(x[at], "x"), top: 10 });
  }

  /** Zoom about the cursor, or about the newest point. */
  function zoom(factor) {
    const x = u.data[0],
      { min, max } = u.scales.x;
    const centre = isNumber(u.cursor.idx) ? x[u.cursor.idx] : x[x.length - 1];
    const low = Math.max(x[0], centre - (centre - min) * factor),
      high = Math.min(x[x.length - 1], centre + (max - centre) * factor);
    if (low === x[0] && high === x[x.length - 1]) return showAll();
    if (high > low) {
      zoomed = true;
      u.setScale("x", { min: low, max: high });
      u.setCursor({ left: u.valToPos(centre, "x"), top: 10 });
    }
  }

  function showAll() {
    zoomed = false;
    u.setCursor({ left: -10, top: -10 });
    update();
  }

  const watcher = new ResizeObserver(() => {
    if (u && plot.clientWidth) u.setSize({ width: plot.clientWidth, height });
  });
  const api = { node, update, destroy };
  return api;
}

/** The controls that all charts of a view share. */
function controls(changed) {
  const weight = h("output", {}, view.smoothing ? view.smoothing.toFixed(2) : "off");
  return h(
    "div",
    { class: "bar", role: "group", "aria-label": "All charts" },
    h(
      "label",
      {},
      "against",
      h(
        "select",
        {
          onchange: (event) => {
            view.x = event.target.value;
            changed();
          },
        },
        Object.entries(X_AXES).map(([name, text]) => h("option", { value: name, selected: view.x === name }, text)),
      ),
    ),
    h(
      "label",
      {},
      "smoothing",
      h("input", {
        type: "range",
        min: 0,
        max: 0.98,
        step: 0.02,
        value: view.smoothing,
        oninput: (event) => {
          view.smoothing = Number(event.target.value);
          weight.textContent = view.smoothing ? view.smoothing.toFixed(2) : "off";
          changed();
        },
      }),
      weight,
    ),
    h("span", { class: "sub" }, "drag, + or −: zoom · double click, Escape: all"),
  );
}
