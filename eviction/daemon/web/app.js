import { $, Chart, amount, ask, choice, clock, el, facts, isStall, keyed, later, level, listen, open, rates, remember, short, shown, span, table, windows, written } from "./page.js";

const samples = []; // {at, available: {signal: bytes}, stalled: {resource: seconds}}, oldest first
const resources = ["memory", "io", "cpu"];
const signalChart = new Chart($("chart"), { height: 260, label: "What is available, over time; arrow keys read values" });
const stallChart = new Chart($("stalls"), { height: 236, label: "Share of time in which tasks waited, over time; arrow keys read values" });
const minutes = choice($("window"), "window", windows, (m) => `${m} min`, draw);
let now, chosen = remember("signal"), all = false;

listen({
  past(past) {
    later(samples, past.samples.map((s) => ({
      at: s.at,
      available: Object.fromEntries(past.signals.map((name, i) => [name, s.available[i]])),
      stalled: Object.fromEntries(resources.map((name, i) => [name, s.stalled[i]])),
    })));
    draw();
  },
  status(latest) {
    now = latest;
    const s = now.status;
    later(samples, [{
      at: Date.parse(s.time),
      available: Object.fromEntries(s.signals.map((x) => [x.name, level(x.name, x.available)])),
      stalled: Object.fromEntries(Object.entries(s.stalls ?? {}).map(([name, x]) => [name, x.some])),
    }]);
    if (!s.signals.some((x) => x.name === chosen)) chosen = s.signals[0]?.name;
    draw();
  },
});
$("find").addEventListener("input", draw);
$("more").addEventListener("click", () => { all = true; draw(); });

/** outlook is the class of a threshold that will be crossed in so many seconds: dim within an hour, bad within two minutes. */
const outlook = (seconds) => (seconds === undefined || seconds > 3600 ? "" : seconds > 120 ? "dim" : "bad");

const met = (signal) => (signal.thresholds.some((t) => t.met && t.kind === "hard") ? "hard" : signal.thresholds.some((t) => t.met) ? "soft" : "");

function draw() {
  if (!now) return;
  drawHead();
  const visible = now.status.signals.filter((s) => s.thresholds.length > 0 || s.name === chosen || all);
  keyed($("signals"), visible.map((s) => ({ ...s, age: 0, source: "", pressed: s.name === chosen })), (s) => s.name, tile);
  $("more").hidden = visible.length === now.status.signals.length;
  $("more").textContent = `Show ${now.status.signals.length - visible.length} more, without a threshold`;
  drawChart();
  drawStalls();
  drawEvictions();
  drawPods();
  drawReclaimable();
}

function drawHead() {
  const s = now.status, shown = s.wouldBe ?? s, would = s.wouldBe ? "would be " : "";
  document.title = `${s.conditions.some((c) => c.status === "True") ? "● " : ""}${s.node} · evictd`;
  $("node").textContent = s.node;
  keyed($("standing"), [
    { text: s.mode, kind: "plain" },
    ...(s.dryRun ? [{ text: "dry run", kind: "warn" }] : []),
    ...shown.conditions.map((c) => ({ text: `${would}${c.type} ${c.status}`, kind: c.status === "True" ? "bad" : "good", title: `since ${clock(Date.parse(c.lastTransitionTime))}: ${c.reason}` })),
    ...shown.taints.map((t) => ({ text: would + t, kind: "plain bad", title: "taint" })),
  ], (c) => c.text, (c) => el("span", { class: `chip ${c.kind}`, title: c.title }, c.text));
  const parts = [`evictd ${now.version}`];
  if (s.api) parts.push(s.api.connected ? "the API server answers" : "the API server does not answer");
  if (s.runtime) parts.push(s.runtime.connected ? "the container runtime answers" : "the container runtime does not answer");
  if (s.growing) parts.push(`${s.growing.pod} grows fastest: ${written("memory", s.growing.perSecond)} a second`);
  $("foot").replaceChildren(...parts.map((p) => el("span", {}, p)));
}

function tile(s) {
  const capacity = isStall(s.name) ? 100 : amount(s.capacity), available = level(s.name, s.available);
  const share = (n) => `${Math.max(0, Math.min(100, (100 * n) / capacity))}%`;
  const gauge = el("div", { class: "gauge", "aria-hidden": "true" });
  if (capacity && available !== null) {
    gauge.append(el("i"), ...s.thresholds.map((t) => el("b", { class: t.kind })));
    gauge.children[0].style.width = share(available);
    s.thresholds.forEach((t, i) => { gauge.children[i + 1].style.left = share(level(s.name, t.quantity)); });
  }
  const limits = s.thresholds.map((t) => el("span", {}, `${t.kind} ${written(s.name, t.quantity)}${t.met ? " met" : ""}`));
  const urgency = outlook(s.secondsToThreshold);
  return el("button", { class: `tile ${met(s)}`, type: "button", "aria-pressed": s.pressed, onclick: () => { chosen = remember("signal", s.name); draw(); } },
    el("span", { class: "name" }, s.name),
    el("span", { class: available === null ? "figure none" : "figure" }, available === null ? "not measured" : short(s.name, available), capacity && !isStall(s.name) ? el("small", {}, `of ${short(s.name, capacity)}`) : ""),
    gauge,
    el("span", { class: "note" }, limits.length ? limits : "no threshold"), urgency ? el("b", { class: `note ${urgency}` }, `${span(s.secondsToThreshold)} left`) : "");
}

/** happened lists the evictions, those of a dry run too, newest first. */
const happened = () => [...now.status.evictions, ...(now.status.wouldBe?.evictions ?? []).map((e) => ({ ...e, dry: true }))].sort((a, b) => Date.parse(b.decided) - Date.parse(a.decided));
const keyOf = (e) => e.uid + e.decided;

function drawChart() {
  const s = now.status.signals.find((x) => x.name === chosen);
  if (!s) return;
  const [from, newest] = shown(samples, minutes()), width = newest - from, urgency = outlook(s.secondsToThreshold), ahead = urgency ? s.secondsToThreshold : undefined;
  const limits = s.thresholds.map((t) => ({ value: level(s.name, t.quantity), text: `${t.kind} ${written(s.name, t.quantity)}`, ink: t.kind === "hard" ? "bad" : "warn" })).filter((l) => Number.isFinite(l.value));
  const side = isStall(s.name) ? -1 : 1;
  const next = limits.filter((l) => side * l.value < side * level(s.name, s.available)).sort((a, b) => side * (b.value - a.value))[0];
  $("chart-title").textContent = `${s.name} over time`;
  $("outlook").textContent = ahead === undefined || !next ? "" : `at the present rate ${next.text} is reached in ${span(ahead)}`;
  $("outlook").className = urgency;
  signalChart.draw({
    from, to: newest + (ahead === undefined ? 0.02 : 0.14) * width,
    curves: [{ name: isStall(s.name) ? "stalled" : "available", ink: "a", area: true, points: samples.map((x) => [x.at, x.available[chosen] ?? null]) }],
    limits, format: (v) => short(s.name, v), binary: !/inodesFree$|^pid\.|\.stall$/.test(s.name),
    ahead: ahead !== undefined && next ? [newest + ahead * 1000, next.value] : null, urgency,
    marks: happened().filter((e) => e.signal === chosen).map((e) => ({
      at: Date.parse(e.decided), key: keyOf(e), dry: e.dry, text: `${clock(Date.parse(e.decided))} ${e.pod} ${e.dry ? "would have been evicted" : "was evicted"}: why?`, open: () => openStory(e),
    })),
  });
}

function drawStalls() {
  const measured = resources.some((name) => samples.some((s) => s.stalled[name] != null));
  $("stalls").hidden = !(($("no-stalls").hidden = measured));
  if (!measured) return;
  const [from, to] = shown(samples, minutes());
  stallChart.draw({
    from, to, least: 5, format: (v) => `${v < 9.95 ? +v.toFixed(1) : Math.round(v)} %`,
    curves: resources.map((name, i) => ({ name, ink: "abc"[i], points: rates(samples, (s) => s.stalled[name] ?? null).map(([t, v]) => [t, v === null ? null : Math.min(100, 100 * v)]) })),
  });
}

function drawEvictions() {
  const all = happened();
  $("no-evictions").hidden = all.length > 0;
  keyed($("evictions"), all, keyOf, (e) => el("li", {}, el("button", { type: "button", onclick: () => openStory(e) },
    el("span", { class: "mono dim" }, clock(Date.parse(e.decided))),
    el("span", { class: "what" }, e.pod),
    el("span", { class: e.dry || e.gone ? "dim" : "bad" }, e.dry ? "dry run" : e.gone ? e.held ? `held ${written(e.signal, e.held)}` : e.freed ? `freed ${written("memory", e.freed)}` : "gone" : "being ended"),
    el("span", { class: "why" }, `${e.signal}: ${e.because || e.message}`))));
}

function drawPods() {
  const order = now.status.ranking[chosen] ?? [], find = $("find").value.toLowerCase();
  const most = Math.max(1, ...order.map((p) => Math.max(amount(p.usage) ?? 0, amount(p.request) ?? 0)));
  const rows = order.map((p, i) => ({ ...p, place: i + 1, most })).filter((p) => p.pod.toLowerCase().includes(find));
  $("order-of").textContent = `for ${chosen}`;
  $("no-pods").hidden = rows.length > 0;
  $("no-pods").textContent = find ? "No pod of that name." : "No pod is known.";
  keyed($("pods"), rows, (p) => p.uid, podRow);
}

function podRow(p) {
  const usage = amount(p.usage), use = el("span", { class: `use ${p.exceeds ? "over" : ""}`, "aria-hidden": "true" }, el("i"));
  use.firstChild.style.width = `${(100 * (usage ?? 0)) / p.most}%`;
  const approx = p.estimated ? "~" : "", why = p.protected ? `never evicted: ${p.protected}` : p.because ?? "";
  return el("tr", { class: p.protected ? "off" : "" },
    el("td", { class: "n dim" }, p.place),
    el("td", {}, el("button", { class: "link", type: "button", onclick: () => openPod(p) }, p.pod), el("div", { class: "why narrow" }, why)),
    el("td", { class: "wide" }, approx + p.qosClass),
    el("td", { class: "n wide" }, p.priority),
    el("td", { class: "n" }, el("span", { class: p.exceeds ? "warn" : "" }, short(chosen, usage)), use),
    el("td", { class: "n" }, approx + written(chosen, p.request)),
    el("td", { class: "n wide" }, written(chosen, p.wouldFree)),
    el("td", { class: "why wide" }, why));
}

function drawReclaimable() {
  const s = now.status, removed = s.reclaimable ?? [], kept = s.unreclaimable ?? [];
  $("reclaim").hidden = removed.length + kept.length === 0;
  const sum = removed.reduce((n, r) => n + (amount(r.wouldFree) ?? 0), 0);
  $("reclaim-sum").textContent = `removing ${removed.length} would free ${short("nodefs", sum)}; ${kept.length} are kept`;
  keyed($("reclaimable"), [...removed, ...kept.map((r) => ({ ...r, kept: true }))], (r) => r.kind + r.id, (r) => el("tr", { class: r.kept ? "off" : "" },
    el("td", {}, r.kind), el("td", { class: "why" }, r.name || r.id), el("td", { class: "n" }, r.kept ? "kept" : written("nodefs", r.wouldFree)), el("td", { class: "why wide" }, r.why)));
}

// ---- stories

function openStory(e) {
  open(`${e.pod} ${e.dry ? "would have been evicted" : "was evicted"}`, ask("v1/why", { pod: e.uid }).then((found) => {
    const when = Date.parse(e.decided);
    return story((found.stories ?? []).find((s) => Math.abs(Date.parse(s.decided) - when) < 2) ?? e, e.dry);
  }, () => story(e, e.dry))); // the recorder does not have it
}

function story(s, dry) {
  const times = [["crossed", s.crossed], ["decided", s.decided], ["first signal", s.signalled], ["SIGKILL", s.killed], ["gone", s.gone]].filter(([, t]) => t).map(([name, t]) => [name, micros(t)]);
  const ranking = s.ranking ?? [];
  return [
    el("p", {}, s.required ? `${s.signal} was ${written(s.signal, s.available)} where ${written(s.signal, s.required)} is the ${s.kind} threshold.` : s.message),
    times.length > 1 && el("div", {}, el("h3", {}, "Timeline"), el("ol", { class: "steps" }, times.map(([name, t], i) =>
      el("li", {}, el("b", {}, i ? `+${span(Math.max(0, t - times[i - 1][1]) / 1e6)}` : clock(t / 1000)), el("span", { class: "dim" }, name))))),
    facts([["Why this pod", s.because], ["Next would have been", s.next || (ranking.length ? "no pod" : "")], ["Held", s.held ? written(s.signal, s.held) : ""], ["Freed", dry || !s.gone || s.held ? "" : s.freed ? written("memory", s.freed) : "an unknown amount"],
      ["Measured by", s.source], ["Grace", s.grace], ["Error", s.error], ["Message", s.message]]),
    ranking.length > 0 && el("div", {}, el("h3", {}, "Ranking at the decision"), table(["##", "Pod", "#Usage", "#Request", ".Why here"],
      ranking.map((r, i) => [i + 1, el("span", { class: r.uid === s.uid ? "bad" : "" }, r.pod), written(s.signal, r.usage), written(s.signal, r.request), el("span", { class: "why" }, r.protected ? `never evicted: ${r.protected}` : r.because ?? "")]))),
  ];
}

/** micros of an instant with microseconds, which Date does not keep. */
const micros = (t) => Date.parse(`${t.slice(0, 19)}Z`) * 1000 + Number((/\.(\d{6})/.exec(t) ?? [0, 0])[1]);

function openPod(p) {
  open(p.pod, ask("v1/explain", { pod: p.uid }).then((e) => [
    ...e.signals.sort((a, b) => (b.signal === chosen) - (a.signal === chosen)).flatMap((s) => s.order.map((o) => place(s, o))),
    e.limits.length > 0 && el("div", {}, el("h3", {}, "Its own limits, above which it is evicted whatever the node has left"),
      table(["Limit", "#Holds", "#Of"], e.limits.map((l) => [`${l.signal} ${l.of ?? ""}`, written(l.signal, l.held), el("span", { class: l.over ? "bad" : "" }, written(l.signal, l.limit))]))),
  ]));
}

function place(s, p) {
  const result = p.protected ? `It is never evicted: ${p.protected}.` : p.goes ? `It would be evicted${s.assumed ? " if the threshold were met" : ""}.` : `It would not be evicted; ${s.victims.length ? s.victims.join(", then ") : "no pod"} would be.`;
  const figure = (of, value) => (of === "priority" ? value : written(s.signal, value));
  return el("section", {}, el("h3", {}, `${s.signal}, ${s.kind} threshold ${written(s.signal, s.required)}: place ${p.place}`), el("p", { class: p.goes ? "bad" : "" }, result),
    p.comparisons?.length > 0 && table([`Compared with ${p.against}`, "#This", "#Other", ""], p.comparisons.map((c) => [c.key, c.this, c.other, c.decides ? el("b", {}, "decides") : ""])),
    p.changes?.length > 0 && el("p", { class: "dim" }, `To ${p.goes ? "not be evicted it would have to rank after" : "be evicted it would have to rank before"} ${p.rival}: ${p.changes.map((c) => `${c.of} ${figure(c.of, c.to)} instead of ${figure(c.of, c.from)}`).join(", or ")}.`) || "");
}
