import { $, Chart, ask, choice, el, facts, keyed, later, listen, open, rates, short, shown, span, table, windows } from "./page.js";

const samples = []; // figures, oldest first
const seen = { pending: [], nodes: new Map() }; // nodes by name
const charts = Object.fromEntries(["depth", "attempts", "latency"].map((id) => [id, new Chart($(id), { height: 170, label: `${id} over time; arrow keys read values` })]));
const minutes = choice($("window"), "window", windows, (m) => `${m} min`, draw);
const keep = (name) => (latest) => { seen[name] = latest; draw(); };

listen({ figures: (news) => { later(samples, news); draw(); }, overview: keep("overview"), pending: keep("pending"), nodes: followNodes });
$("find").addEventListener("input", draw);

function draw() {
  if (!seen.overview) return;
  const o = seen.overview;
  document.title = `${o.pending ? `(${o.pending}) ` : ""}evictd-scheduler`;
  keyed($("standing"), [
    { text: o.standing, kind: o.standing === "schedules" ? "good" : "warn" },
    { text: `${o.nodes} node${o.nodes === 1 ? "" : "s"}`, kind: "plain" }, { text: `${o.placed} pods placed`, kind: "plain" },
  ], (c) => c.text, (c) => el("span", { class: `chip ${c.kind}` }, c.text));
  drawFigures();
  drawPending();
  drawNodes();
}

// ---- figures

const total = (s, result) => s.attempts[result] ?? 0;

/** quantile of the attempts between two figures, seconds; null where there was none. */
function quantile(was, is, q) {
  const counts = (is.durations ?? []).map((n, i) => n - (was.durations?.[i] ?? 0)), all = counts.at(-1);
  if (!all || counts.some((n) => n < 0)) return null;
  const i = counts.findIndex((n) => n >= q * all), below = i ? counts[i - 1] : 0, from = i ? is.bounds[i - 1] : 0;
  return from + ((is.bounds[i] - from) * (q * all - below)) / (counts[i] - below);
}

function drawFigures() {
  const newest = samples.at(-1);
  if (!newest) return;
  const [from] = shown(samples, minutes()), first = samples.find((s) => s.at >= from), ms = (s) => (s === null ? "–" : span(s));
  const common = { from, to: newest.at };
  const tile = ([name, figure, note, kind]) => el("div", { class: `tile ${kind ?? ""}` }, el("span", { class: "name" }, name), el("span", { class: "figure" }, figure), el("span", { class: "note" }, note));
  const depth = (name) => newest.pending[name] ?? 0;
  const results = ["scheduled", "unschedulable", "error"], made = results.map((r) => total(newest, r) - total(first, r));
  keyed($("tiles"), [
    ["active", depth("active"), "ready to be scheduled"],
    ["backoff", depth("backoff"), "wait for the next attempt"],
    ["unschedulable", depth("unschedulable"), "wait for a cluster event", depth("unschedulable") ? "soft" : ""],
    ["gated", depth("gated"), "rejected by PreEnqueue"],
    [`attempts in ${minutes()} min`, made.reduce((a, b) => a + b), `${made[0]} scheduled, ${made[1]} not, ${made[2]} failed`, made[2] ? "hard" : ""],
    ["median attempt", ms(quantile(first, newest, 0.5)), `99 of 100 within ${ms(quantile(first, newest, 0.99))}`],
  ], ([name]) => name, tile);
  charts.depth.draw({
    ...common, least: 3, format: (v) => short("pid.", v),
    curves: [["active", "a"], ["backoff", "b"], ["unschedulable", "bad"], ["gated", "off"]].map(([name, ink]) => ({ name, ink, points: samples.map((s) => [s.at, s.pending[name] ?? null]) })),
  });
  charts.attempts.draw({
    ...common, least: 1, format: (v) => String(+v.toFixed(1)),
    curves: results.map((name, i) => ({ name, ink: ["good", "warn", "bad"][i], points: rates(samples, (s) => total(s, name)) })),
  });
  charts.latency.draw({
    ...common, least: 0.002, format: span,
    curves: [["median", "a", 0.5], ["99th percentile", "c", 0.99]].map(([name, ink, q]) => ({ name, ink, points: samples.slice(1).map((s, i) => [s.at, quantile(samples[i], s, q)]) })),
  });
}

// ---- pods

const why = (p) => p.gate || (p.nominated ? `waits for victims on ${p.nominated}` : p.message || (p.rejectors ?? []).join(", "));

function drawPending() {
  const find = $("find").value.toLowerCase(), rows = seen.pending.filter((p) => p.pod.toLowerCase().includes(find));
  $("pending-sum").textContent = seen.overview.pending > seen.pending.length ? `the first ${seen.pending.length} of ${seen.overview.pending}` : "";
  $("no-pending").hidden = rows.length > 0;
  $("no-pending").textContent = find ? "No pending pod of that name." : "No pending pods.";
  keyed($("pending"), rows.map((p) => ({ ...p, waits: span(Math.max(0, (seen.overview.at - Date.parse(p.since)) / 1000)) })), (p) => p.pod, (p) => el("tr", {},
    el("td", {}, el("button", { class: "link", type: "button", onclick: () => openPod(p.pod) }, p.pod), el("div", { class: "why narrow" }, why(p))),
    el("td", { class: p.place === "unschedulable" ? "warn" : "" }, p.place), el("td", { class: "n" }, p.waits), el("td", { class: "n wide" }, p.attempts), el("td", { class: "why wide" }, why(p))));
}

function openPod(name) {
  open(name, ask("v1/explain", { pod: name }).then((x) => [
    el("p", {}, `It fits ${x.feasible} of ${x.nodes} nodes${x.node ? `; it is on ${x.node}; the result is without it` : ""}.`),
    x.waiting && facts([["Waits since", `${new Date(x.waiting.since).toLocaleString()}, ${x.waiting.place}, after ${x.waiting.attempts} attempt${x.waiting.attempts === 1 ? "" : "s"}`], ["Reason", why(x.waiting)]]),
    x.refusal && el("p", { class: "bad" }, `No node is evaluated: ${x.refusal}`),
    x.best.length > 0 && el("div", {}, el("h3", {}, "Best nodes"), table(["Node", "#Score", ".By plugin"],
      x.best.map((n) => [n.node, n.total, el("span", { class: "why" }, Object.entries(n.scores).filter(([, s]) => s).map(([p, s]) => `${p} ${s}`).join(", "))]))),
    x.refused.length > 0 && el("div", {}, el("h3", {}, "Rejections"), table(["#Nodes", "Plugin", "Reason", ".Preemption"],
      x.refused.map((r) => [r.count, r.plugin ?? "", r.reasons.join(", "), r.resolvable ? "may help" : "cannot help"]))),
    x.nearest.length > 0 && el("div", {}, el("h3", {}, "Nearest nodes"), table(["Node", "Reasons"],
      x.nearest.map((n) => [n.node, [...n.reasons, ...(n.taints ?? []).map((t) => `taint ${t} is not tolerated`), ...(n.short ?? []).map((s) => `${s.resource}: ${s.lacks} more than the free ${s.free}`)].map((line) => el("div", {}, line))]))),
  ]));
}

// ---- nodes

const kinds = [["hard", "bad", "beyond a hard threshold"], ["soft", "warn", "beyond a soft threshold"], ["pressed", "bad", "under pressure"], ["tight", "tight", "near a threshold"], ["unready", "off", "not ready"], ["ok", "good", "below all thresholds"]];

/** followNodes takes all shown nodes, or what has changed of them. */
function followNodes(news) {
  if (Array.isArray(news)) seen.nodes = new Map(news.map((n) => [n.name, n]));
  else {
    for (const name of news.gone) seen.nodes.delete(name);
    for (const n of news.changed) seen.nodes.set(n.name, n);
  }
  draw();
}

function noteOf(n) {
  const levels = Object.entries(n.silent ? {} : n.levels ?? {}), worst = ["hard", "soft", "tight"].map((l) => levels.find(([, is]) => is === l)).find(Boolean);
  if (!n.ready) return "not ready";
  return [n.conditions?.join(", "), worst && !n.conditions ? `${worst[0]} ${worst[1]}` : "", n.unschedulable ? "cordoned" : ""].filter(Boolean).join(", ") || share(n, "memory");
}

const share = (n, resource) => `${resource} ${Math.round((100 * n.given[resource][0]) / (n.given[resource][1] || 1))} % requested`;

function drawNodes() {
  const nodes = [...seen.nodes.values()], count = seen.overview.kinds;
  $("no-nodes").hidden = nodes.length > 0;
  $("nodes-sum").textContent = seen.overview.nodes > nodes.length ? `${nodes.length} of ${seen.overview.nodes}` : "";
  $("nodes-legend").replaceChildren(...kinds.filter(([kind]) => count[kind]).map(([kind, ink, text]) => el("span", { class: `ink-${ink}` }, `${count[kind]} ${text}`)));
  $("nodes").classList.toggle("small", nodes.length > 120);
  $("nodes").style.setProperty("--cell", nodes.length > 120 ? (nodes.length > 1500 ? "10px" : "18px") : "160px");
  const rank = (n) => kinds.findIndex(([kind]) => kind === n.kind);
  keyed($("nodes"), nodes.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, undefined, { numeric: true })), (n) => n.name, (n) =>
    el("button", { class: `cell ink-${kinds[rank(n)][1]}`, type: "button", title: `${n.name}: ${noteOf(n)}`, "aria-label": `${n.name}: ${noteOf(n)}`, onclick: () => openNode(n.name) },
      el("span", { class: "name" }, n.name), el("span", { class: "note" }, noteOf(n))));
}

function openNode(name) {
  const n = seen.nodes.get(name);
  if (!n) return;
  const given = (resource, write) => `${write(n.given[resource][0])} of ${write(n.given[resource][1])} requested`;
  open(name, [
    facts([["Ready", n.ready ? "yes" : "no"], ["Conditions", n.conditions?.join(", ")], ["Taints", n.taints?.join(", ")], ["Cordoned", n.unschedulable ? "yes" : ""],
      ["CPU", given("cpu", (v) => `${+(v / 1000).toFixed(2)}`)], ["Memory", given("memory", (v) => short("memory", v))], ["Pods", given("pods", String)],
      ["Recent evictions", n.evicted ? String(n.evicted) : ""]]),
    n.levels ? el("div", {}, el("h3", {}, n.silent ? "Last levels of evictd; its Lease has expired" : "Levels of evictd"), table(["Signal", "Level"],
      Object.entries(n.levels).sort().map(([signal, level]) => [signal, el("span", { class: { hard: "bad", soft: "warn", tight: "warn", ok: "good" }[level] }, level)])))
      : el("p", { class: "dim" }, "No evictd publishes levels of this node, or no profile has the plugin NodePressure."),
  ]);
}
