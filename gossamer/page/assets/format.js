"use strict";
// Elements, numbers, and what each figure means. Text from runs is never parsed as HTML.

function h(tag, attributes, ...children) {
  const svg = ["svg", "path", "circle", "g", "text", "polyline", "title"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "css") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function fill(node, ...children) {
  node.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return node;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const COMPACT = [
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** 1,234,567 · 12.35 · 0.0042 · 3.1e-7; a dash where there is none. */
function number(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(size >= 100 ? 5 : 4)));
}

/** 1.2M, for axes and narrow places. */
function compact(value) {
  if (!isNumber(value)) return "–";
  const unit = COMPACT.find(([size]) => Math.abs(value) >= size);
  if (!unit)
    return Math.abs(value) < 1e-3 && value !== 0 ? value.toExponential(0) : String(Number(value.toPrecision(4)));
  return Number((value / unit[0]).toPrecision(4)) + unit[1];
}

/** 1:02:03. */
function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds)),
    pad = (n) => String(n).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}:${pad(whole % 60)}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}:${pad(minutes % 60)}:${pad(whole % 60)}`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const percent = (share) => (isNumber(share) ? `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %` : "–");
const words = (name) => name.replace(/^.*\//, "").replace(/_/g, " ");
const title = (name) => words(name).replace(/^./, (first) => first.toUpperCase());
const last = (list) => {
  for (let i = (list || []).length - 1; i >= 0; i--) if (isNumber(list[i])) return list[i];
  return null;
};
const colour = (index) => `--c${index % 8}`;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const STATES = {
  running: "A process of this machine is training it.",
  ended: "It ended as planned.",
  interrupted: "A signal ended it; a checkpoint was saved.",
  short: "It ended with steps missing.",
  crashed: "No process trains it, and it left no result.",
  damaged: "It has metrics, but no config.json of a run that can be read.",
};

// name: [title, unit, what it means]
const ABOUT = {
  mean_return: [
    "Mean return",
    "",
    "Mean undiscounted, unclipped return of the last 100 training episodes. Actions are sampled, so an evaluation may differ.",
  ],
  steps_per_second: [
    "Steps per second",
    "steps/s",
    "Environment steps of all workers together, over the last 10 seconds. The legend and the table have the mean over the run. A step is one decision of the agent.",
  ],
  "machine/cores_busy": [
    "Busy cores",
    "cores",
    "CPU seconds of the run in each second, since the row before: its process and those of its environments.",
  ],
  "machine/gpu_utilization": ["GPU utilisation", "", "Share of the time in which a kernel ran on the GPU, since the row before."],
  "machine/gpu_memory_gb": ["GPU memory", "GB", "The most that all programs held on the GPU, since the row before."],
  "machine/gpu_watts": ["GPU power", "W", "Mean power of the whole GPU, since the row before."],
  loss: ["Loss", "", "The loss that the optimiser minimised at the last update, mean over the members."],
  policy_loss: ["Policy loss", "", "The policy gradient's part of the loss."],
  value_loss: ["Value loss", "", "Error of the value estimates, before its coefficient."],
  entropy: [
    "Entropy of the policy",
    "nats",
    "How undecided the policy is. It falls as the policy becomes certain; zero early on means that exploration has stopped.",
  ],
  gradient_norm: ["Gradient norm", "", "L2 norm of all gradients before clipping."],
  learning_rate: ["Learning rate", "", "As of the last update."],
  kl: ["KL to the policy that acted", "nats", "How far the updates of one rollout moved the policy."],
  clipped: ["Clipped", "", "Fraction of samples whose probability ratio was clipped."],
  clip_fraction: ["Clipped", "", "Fraction of samples whose probability ratio was clipped."],
  policy_lag_mean: [
    "Policy lag, mean",
    "updates",
    "Optimiser steps between the policy that acted and the one that learns, since the row before.",
  ],
  policy_lag_p50: ["Policy lag, median", "updates", "Half of what was learned from since the row before was no older."],
  policy_lag_p90: ["Policy lag, 90 %", "updates", "90 % of what was learned from since the row before was no older."],
  policy_lag_max: ["Policy lag, greatest", "updates", "The oldest policy that was learned from since the row before."],
  queue: ["Waiting batches", "batches", "Full batches in the queue behind the one that is learned from."],
  gradient_staleness_mean: [
    "Staleness of gradients, mean",
    "updates",
    "Updates by other learners between a gradient's parameters and those that it changed, over the run.",
  ],
  dropped_stale: ["Gradients dropped as too old", "gradients", "More updates behind than --max-delay, over the run."],
  dropped_outlier: ["Gradients dropped as outliers", "gradients", "Of losses above --loss-deviations, over the run."],
  drawn: ["Steps drawn from replay", "steps", "Each as often as it was drawn, over the run."],
  dropped_lost: ["Gradients lost on the way", "gradients", "To shards that did not answer, over the run."],
  dropped_replaced: ["Gradients of replaced parameters", "gradients", "Other hosts' state took the place of the parameters, over the run."],
  stored: ["Steps stored", "steps", "In replay memories, over the run."],
  lost: ["Steps lost from replay", "steps", "In memories that have failed, over the run."],
  "gossip/distance": [
    "Consensus distance",
    "",
    "Distance of the farthest member from the mean of all members' parameters (L2).",
  ],
  "gossip/bound": ["Bound", "", "Upper bound of that distance, from the mixing weights and the lengths of the steps."],
  "gossip/kl": [
    "KL between members, mean",
    "nats",
    "KL divergence between the policies of members, on the same observations.",
  ],
  "gossip/kl_max": ["KL between members, greatest", "nats", "Of the pair that differs most."],
  "gossip/gradient_cosine": ["Cosine of gradients", "", "1: members' gradients agree. 0: they have nothing in common."],
  "gossip/staleness_mean": [
    "Staleness, mean",
    "iterations",
    "How many optimiser steps the averaged messages lagged behind their receivers.",
  ],
  "gossip/staleness_max": ["Staleness, greatest", "iterations", "The most stale message since the row before."],
  "gossip/age_ms_median": ["Age of messages, median", "ms", "Between publishing and averaging."],
  "gossip/waited": [
    "Time blocked by gossip",
    "",
    "Fraction of the members' time that they waited for others, because of the staleness bound.",
  ],
  "gossip/mixed": ["Messages averaged", "", "Since the row before."],
  "gossip/refused": ["Packets refused", "", "Since the row before: damaged, foreign or outdated ones."],
  "gossip/projection_error": [
    "Projection error",
    "",
    "Measured relative error of distances computed from random projections.",
  ],
};
const about = (name) => ABOUT[name] || [title(name), "", ""];

/** A small "?" that shows a sentence when it is pointed at, focused or tapped. */
function help(text) {
  if (!text) return null;
  const show = (event) => {
    const tip = document.getElementById("tip"),
      box = event.currentTarget.getBoundingClientRect();
    tip.textContent = text;
    tip.hidden = false;
    tip.style.left = `${Math.max(8, Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8)) + scrollX}px`;
    tip.style.top = `${box.bottom + 6 + scrollY}px`;
  };
  const hide = () => {
    document.getElementById("tip").hidden = true;
  };
  return h(
    "button",
    {
      type: "button",
      class: "help",
      "aria-label": `What this means: ${text}`,
      onmouseenter: show,
      onfocus: show,
      onclick: show,
      onmouseleave: hide,
      onblur: hide,
    },
    "?",
  );
}

/** A small curve without axes. */
function sparkline(values, width = 120, height = 26) {
  const svg = h("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
  if (values.length > 1) {
    const low = Math.min(...values),
      span = Math.max(...values) - low || 1;
    const at = (value, i) =>
      `${((i / (values.length - 1)) * (width - 4) + 2).toFixed(1)},${(height - 3 - ((value - low) / span) * (height - 6)).toFixed(1)}`;
    svg.append(
      h("polyline", {
        points: values.map(at).join(" "),
        fill: "none",
        stroke: "var(--mark, var(--accent))",
        "stroke-width": "1.5",
        "stroke-linejoin": "round",
      }),
    );
  }
  return svg;
}

/** Counts of values in equal bins: [{from, to, count}]. */
function binned(values, bins = 40) {
  const known = values.filter(isNumber);
  if (!known.length) return [];
  let low = Infinity,
    high = -Infinity;
  for (const value of known) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const whole = known.every(Number.isInteger),
    distinct = high - low + 1;
  const count = whole && distinct <= bins ? distinct : low === high ? 1 : bins;
  const width = whole && distinct <= bins ? 1 : (high - low) / count || 1;
  const found = Array.from({ length: count }, (_, i) => ({
    from: low + i * width,
    to: whole && width === 1 ? low + i : low + (i + 1) * width,
    count: 0,
  }));
  for (const value of known) found[Math.min(count - 1, Math.floor((value - low) / width))].count++;
  return found;
}

/** A histogram: {title, about, unit, bins()} -> widget. */
function histogram({ name, text, unit, bins, label }) {
  const body = h("div"),
    said = h("p", { class: "sub" });
  const node = h("section", { class: "card chart" }, h("header", {}, h("h3", {}, name), help(text)), body, said);
  const update = () => {
    const found = bins(),
      most = Math.max(1, ...found.map((bin) => bin.count));
    if (!found.length) return fill(body, h("p", { class: "none" }, "nothing recorded"));
    const show =
      label || ((bin) => (bin.from === bin.to ? number(bin.from) : `${number(bin.from)} to ${number(bin.to)}`));
    const total = found.reduce((sum, bin) => sum + bin.count, 0),
      top = found.reduce((a, b) => (b.count > a.count ? b : a));
    fill(
      body,
      h(
        "div",
        {
          class: "hist",
          role: "img",
          "aria-label": `Histogram of ${name}: ${number(total)} values, most often ${show(top)}`,
        },
        found.map((bin) =>
          h("i", {
            title: `${show(bin)} ${unit}: ${number(bin.count)}`,
            css: { height: `${(100 * bin.count) / most}%` },
          }),
        ),
      ),
      h(
        "div",
        { class: "ends" },
        h("span", {}, show(found[0])),
        h("span", {}, unit),
        h("span", {}, show(found[found.length - 1])),
      ),
    );
    said.textContent = `${number(total)} in all, most often ${show(top)} ${unit}`;
  };
  return { node, update };
}
