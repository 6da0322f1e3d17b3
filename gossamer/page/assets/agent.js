"use strict";
// The agent that plays while the page shows it: its screen, what the network sees, what it thinks of doing.

function agentView(moment) {
  const screen = h("img", { class: "screen", alt: "The environment's screen" }),
    seen = h("div"),
    acts = h("div"),
    facts = h("div", { class: "facts" });
  const note = h("p", { class: "none", role: "status" }),
    stage = h(
      "div",
      { class: "agent" },
      h("section", { class: "card" }, facts, screen),
      h(
        "div",
        { class: "stack" },
        h(
          "section",
          { class: "card" },
          h(
            "header",
            { class: "head" },
            h("h2", {}, "What the policy does"),
            help("Probabilities of the actions for this observation. The marked one was drawn."),
          ),
          acts,
        ),
        h(
          "section",
          { class: "card" },
          h(
            "header",
            { class: "head" },
            h("h2", {}, "What the network sees"),
            help("The observation as the network gets it. Stacked frames lie side by side, the newest on the right."),
          ),
          seen,
        ),
      ),
    );
  const node = h("div", {}, note, stage);
  const update = () => {
    const now = moment(),
      said = now.error || now.note || "";
    note.textContent = said;
    note.hidden = !said;
    stage.hidden = Boolean(said) || !now.action;
    if (stage.hidden) return;
    fill(
      facts,
      now.env && fact("plays", now.env),
      fact("game", number(now.game)),
      fact("score", number(now.score)),
      fact("step", number(now.steps)),
      fact("value", number(now.value)),
      fact("trained", `${number(now.trained)} steps`),
      now.over && h("span", { class: "chip" }, "game over"),
    );
    screen.hidden = !now.screen;
    if (now.screen) screen.src = now.screen;
    fill(acts, actionBars(now.action));
    showParts(seen, now.observation, now.no_screen);
  };
  return { node, update };
}

const fact = (name, value) => h("span", {}, `${name} `, h("b", {}, value));

function actionBars(action) {
  if (action.choices)
    return action.choices.flatMap((choice, i) => [
      action.choices.length > 1 && h("h3", {}, `choice ${i + 1}`),
      ...choice.probabilities.map((p, a) =>
        h(
          "div",
          { class: `prob ${a === choice.taken ? "taken" : ""}` },
          h("span", {}, action.names[a] || `action ${a}`),
          h("span", { class: "track" }, h("i", { css: { left: 0, width: `${100 * p}%` } })),
          h("span", {}, percent(p)),
        ),
      ),
    ]);
  const reach = Math.max(
    1,
    ...action.mean.map((mean, i) => Math.abs(mean) + action.std[i]),
    ...action.drawn.map(Math.abs),
  );
  const at = (value) => 50 + (50 * value) / reach;
  return action.mean.map((mean, i) =>
    h(
      "div",
      { class: "prob" },
      h("span", {}, `number ${i}`),
      h(
        "span",
        { class: "track", title: `mean ${number(mean)}, deviation ${number(action.std[i])}` },
        h("i", {
          css: {
            left: `${at(mean - action.std[i])}%`,
            width: `${at(mean + action.std[i]) - at(mean - action.std[i])}%`,
          },
        }),
        h("u", { css: { left: `${at(action.drawn[i])}%` } }),
      ),
      h("span", {}, action.drawn[i].toFixed(2)),
    ),
  );
}

function showParts(node, parts, noScreen) {
  const images = node.querySelectorAll("img"),
    pictures = parts.filter((part) => part.picture);
  if (images.length === pictures.length && pictures.length === parts.length && images.length)
    return images.forEach((image, i) => {
      image.src = pictures[i].picture;
    });
  fill(
    node,
    noScreen && h("p", { class: "sub" }, `The environment shows no screen: ${noScreen}`),
    parts.flatMap((part) => [
      h("div", { class: "sub" }, `${part.name} ${part.shape.join(" × ")}`.trim()),
      part.picture
        ? h("img", { class: "seen", src: part.picture, alt: "What the network sees" })
        : numberBars(part.numbers),
    ]),
  );
}

function numberBars(numbers) {
  const reach = Math.max(1e-9, ...numbers.map(Math.abs));
  if (numbers.length > 48)
    return h(
      "div",
      { class: "hist", role: "img", "aria-label": `${numbers.length} numbers` },
      numbers.map((value) => h("i", { title: number(value), css: { height: `${(100 * Math.abs(value)) / reach}%` } })),
    );
  return h(
    "div",
    {},
    numbers.map((value, i) =>
      h(
        "div",
        { class: "prob" },
        h("span", { class: "sub" }, `[${i}]`),
        h(
          "span",
          { class: "track" },
          h("i", {
            css:
              value < 0
                ? { right: "50%", width: `${(50 * -value) / reach}%` }
                : { left: "50%", width: `${(50 * value) / reach}%` },
          }),
        ),
        h("span", {}, value.toFixed(2)),
      ),
    ),
  );
}
