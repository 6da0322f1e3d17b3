"use strict";
// Members, hosts and the gossip graph of one run.

const MOST_EDGES = 64; // that are listed as a table

/** The learners of each gossiping member, by its number: learners that average their gradients are one member. */
function gossiping(status) {
  const found = new Map();
  for (const learner of (status.members || []).filter((m) => m.learns !== false)) {
    const number = learner.group ?? learner.rank;
    found.set(number, [...(found.get(number) || []), learner]);
  }
  return found;
}

/** Directed edges between members on a circle; colour and width say how stale messages are. */
function gossipGraph(detail) {
  const box = h("div"),
    table = h("div"),
    edgesAsTable = h("details", {}, h("summary", {}, "Edges as a table"), table);
  const node = h(
    "section",
    { class: "card" },
    h(
      "header",
      { class: "head" },
      h("h2", {}, "Gossip graph"),
      help(
        "An arrow points from the member that sends parameters to the one that averages them. Colour and number: staleness in iterations, mean over the newest 32 messages (0 of a sender that is ahead).",
      ),
    ),
    box,
    edgesAsTable,
  );
  const update = () => {
    const { status = {}, gossip = {} } = detail();
    const edges = (status.traffic && status.traffic.edges) || (gossip.traffic && gossip.traffic.edges) || [];
    const members = gossiping(status);
    const ranks = [...new Set([...members.keys(), ...edges.flatMap((e) => [e.from, e.to])])].sort((a, b) => a - b);
    edgesAsTable.hidden = !edges.length || edges.length > MOST_EDGES;
    if (!edges.length) return fill(box, h("p", { class: "none" }, "no messages yet"));
    const size = 360,
      middle = size / 2,
      ring = 128,
      many = ranks.length > 24;
    const place = new Map(
      ranks.map((rank, i) => [
        rank,
        [
          middle + ring * Math.sin((2 * Math.PI * i) / ranks.length),
          middle - ring * Math.cos((2 * Math.PI * i) / ranks.length),
        ],
      ]),
    );
    const most = Math.max(4, ...edges.map((edge) => Math.abs(edge.staleness)));
    const away = new Set(ranks.filter((rank) => (members.get(rank) || []).some((learner) => !learner.up)));
    const learners = (rank) => {
      const own = members.get(rank) || [];
      const each = own.map((learner) => `mean return ${number(learner.mean_return)}`);
      return own.length < 2 ? each.join("") : own.map((learner, i) => `learner ${learner.rank}: ${each[i]}`).join("; ");
    };
    const svg = h("svg", {
      viewBox: `0 0 ${size} ${size}`,
      class: "graph",
      role: "img",
      "aria-label": `${ranks.length} members, ${edges.length} edges; staleness ${number(Math.min(...edges.map((e) => e.staleness)))} to ${number(Math.max(...edges.map((e) => e.staleness)))} iterations`,
    });
    for (const edge of edges) svg.append(arrow(edge, place, most, many, away));
    for (const rank of ranks) {
      const [x, y] = place.get(rank);
      svg.append(
        h(
          "g",
          { class: away.has(rank) ? "away" : "" },
          h("title", {}, `member ${rank}${away.has(rank) ? ", away" : ""}; ${learners(rank)}`),
          h("circle", { class: "node", cx: x, cy: y, r: many ? 5 : 15, fill: "var(--accent)" }),
          !many &&
            h(
              "text",
              {
                x,
                y: y + 4,
                "text-anchor": "middle",
                "font-weight": 700,
                css: { fill: away.has(rank) ? "var(--bad)" : "var(--card)" },
              },
              String(rank),
            ),
        ),
      );
    }
    fill(box, svg, legend(most));
    if (!edgesAsTable.hidden) fill(table, edgeTable(edges));
  };
  return { node, update };
}

function arrow(edge, place, most, many, away) {
  const [x1, y1] = place.get(edge.from),
    [x2, y2] = place.get(edge.to),
    gap = many ? 6 : 17;
  const dx = x2 - x1,
    dy = y2 - y1,
    length = Math.hypot(dx, dy) || 1,
    bend = 0.16;
  const cx = (x1 + x2) / 2 + dy * bend,
    cy = (y1 + y2) / 2 - dx * bend;
  const toward = (x, y, px, py, by) => {
    const d = Math.hypot(px - x, py - y) || 1;
    return [x + ((px - x) / d) * by, y + ((py - y) / d) * by];
  };
  const [sx, sy] = toward(x1, y1, cx, cy, gap),
    [ex, ey] = toward(x2, y2, cx, cy, gap + 5),
    [tx, ty] = toward(x2, y2, cx, cy, gap);
  const share = Math.min(1, Math.abs(edge.staleness) / most),
    dead = away.has(edge.from) || away.has(edge.to);
  const stroke = dead ? "var(--line)" : `color-mix(in srgb, var(--c1) ${Math.round(100 * share)}%, var(--c2))`;
  const nx = (-(ty - ey) / (Math.hypot(tx - ex, ty - ey) || 1)) * 4,
    ny = ((tx - ex) / (Math.hypot(tx - ex, ty - ey) || 1)) * 4;
  return h(
    "g",
    {},
    h(
      "title",
      {},
      `${edge.from} to ${edge.to}: staleness ${number(edge.staleness)} iterations, ${number(edge.messages)} messages averaged`,
    ),
    h("path", {
      class: "edge",
      d: `M${sx} ${sy} Q${cx} ${cy} ${ex} ${ey}`,
      "stroke-width": many ? 1 : 1.5 + 2 * share,
      css: { stroke },
      "stroke-dasharray": dead ? "4 4" : null,
    }),
    h("path", { d: `M${tx} ${ty} L${ex + nx} ${ey + ny} L${ex - nx} ${ey - ny} Z`, css: { fill: stroke } }),
    !many &&
      length > 40 &&
      h(
        "text",
        {
          x: (x1 + 2 * cx + x2) / 4 + (dy / length) * 20,
          y: (y1 + 2 * cy + y2) / 4 - (dx / length) * 20 + 4,
          "text-anchor": "middle",
          class: "soft",
        },
        edge.staleness.toFixed(1),
      ),
  );
}

const legend = (most) =>
  h(
    "div",
    { class: "ends" },
    h("span", { css: { color: "var(--c2)" } }, "■ fresh (0)"),
    h("span", { css: { color: "var(--c1)" } }, `■ ${number(most)} iterations stale`),
  );

function edgeTable(edges) {
  const row = (kind, values) =>
    h(
      "tr",
      {},
      values.map((value) => h(kind, { class: "num" }, String(value))),
    );
  return h(
    "table",
    {},
    h("thead", {}, row("th", ["from", "to", "staleness", "messages"])),
    h(
      "tbody",
      {},
      edges.map((edge) => row("td", [edge.from, edge.to, number(edge.staleness), number(edge.messages)])),
    ),
  );
}

/** Hosts, up and down, with what they compute with; the members and their own returns. */
function hostList(key) {
  const list = h("div", { class: "hosts" }),
    absences = h("div");
  const node = h(
    "section",
    { class: "card" },
    h(
      "header",
      { class: "head" },
      h("h2", {}, "Hosts"),
      help("A host is one process. Its learners are away while it is down; the others go on."),
    ),
    list,
    absences,
  );
  const update = () => {
    const { status = {}, hosts = {}, result = {} } = detailOf(key);
    const known = new Map(Object.keys(hosts).map((name) => [name, { name, up: true, address: "", workers: [] }]));
    for (const host of status.hosts || []) known.set(host.name, host);
    fill(
      list,
      [...known.values()].map((host) => hostCard(host, hosts[host.name] || {}, isRunning(key))),
    );
    const past = (result.failures && result.failures.length ? result.failures : status.absences) || [];
    fill(
      absences,
      past.length > 0 &&
        h(
          "div",
          {},
          h("h3", { css: { margin: "12px 0 4px" } }, "Absences in this session"),
          h(
            "table",
            {},
            h(
              "tbody",
              {},
              past.map((each) =>
                h(
                  "tr",
                  {},
                  h("td", {}, each.host),
                  h("td", {}, `after ${duration(each.at_seconds)}`),
                  h("td", {}, isNumber(each.away_seconds) ? `for ${number(each.away_seconds)} s` : "until now"),
                ),
              ),
            ),
          ),
        ),
    );
  };
  return { node, update };
}

/** Nothing of a run that has ended is up, whatever its last status was. */
const presence = (up, running) =>
  (running || !up) && h("span", { class: `chip ${up ? "up" : "away"}` }, up ? "up" : "away");

function hostCard(host, info, running) {
  const facts = [
    info.processor,
    info.cores && `${info.cores} cores`,
    info.gpu,
    info.device && `computes on ${info.device} in ${info.precision}`,
    info.threads && `${info.threads} thread${info.threads > 1 ? "s" : ""}`,
  ];
  return h(
    "div",
    { class: `host ${host.up ? "" : "away"}` },
    h("h3", {}, host.name, presence(host.up, running)),
    h("div", { class: "sub" }, [host.address || info.node, ...facts].filter(Boolean).join(" · ")),
    host.workers.length > 0 && h("div", { class: "sub" }, host.workers.join(", ")),
  );
}

function memberTable(key) {
  const body = h("tbody"),
    node = h(
      "section",
      { class: "card" },
      h(
        "header",
        { class: "head" },
        h("h2", {}, "Members"),
        help("Workers that have reported, with the mean return of their own last 100 episodes."),
      ),
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          {},
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["worker", "does", "", "mean return"].map((name, i) =>
                h("th", { scope: "col", class: i === 3 ? "num" : "" }, name),
              ),
            ),
          ),
          body,
        ),
      ),
    );
  const update = () =>
    fill(
      body,
      (detailOf(key).status?.members || []).map((member) =>
        h(
          "tr",
          {},
          h("td", {}, member.name),
          h("td", { class: "sub" }, member.learns === false ? "acts" : "learns"),
          h("td", {}, presence(member.up, isRunning(key))),
          h("td", { class: "num" }, number(member.mean_return)),
        ),
      ),
    );
  return { node, update };
}
