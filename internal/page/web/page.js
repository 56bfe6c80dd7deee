// What the pages of both programs share. All values of a program are inserted as text, never as HTML.

/** el makes an element; properties that begin with "on" are listeners. */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== "" && child != null));
  return node;
}

export const $ = (id) => document.getElementById(id);

/** keyed shows items as children of a node. The children of items that did not change stay, and the focus stays where it is. */
export function keyed(parent, items, key, make) {
  const before = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  const after = items.map((item, i) => {
    const was = before.get(key(item)), text = JSON.stringify(item) + i;
    if (was && was.shown === text) return was;
    const node = make(item, i);
    node.dataset.key = key(item);
    node.shown = text;
    if (was && was.contains(document.activeElement)) {
      requestAnimationFrame(() => (node.matches("button") ? node : node.querySelector("button"))?.focus({ preventScroll: true }));
    }
    return node;
  });
  if (after.length !== parent.children.length || after.some((node, i) => node !== parent.children[i])) parent.replaceChildren(...after);
}

// ---- amounts and times

const powers = { Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60, n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };

/** amount is the number that a Kubernetes quantity stands for; null where the text is no quantity. */
export function amount(quantity) {
  const parts = /^([+-]?[\d.]+(?:e[+-]?\d+)?)([a-zA-Z]*)$/.exec(quantity ?? "");
  return parts ? Number(parts[1]) * (parts[2] ? powers[parts[2]] ?? NaN : 1) : null;
}

/** isStall says whether a signal is a share of the time, in percent, which acts above its threshold. */
export const isStall = (signal) => /\.stall$/.test(signal);

/** level is the number that a quantity of a signal stands for. */
export const level = (signal, quantity) => (isStall(signal) ? (quantity ? parseFloat(quantity) : null) : amount(quantity));

const inBytes = (signal) => !/inodesFree$|^pid\./.test(signal);

/** short is an amount of a signal for people. */
export function short(signal, n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  if (isStall(signal)) return `${+n.toFixed(1)} %`;
  const base = inBytes(signal) ? 1024 : 1000;
  const units = inBytes(signal) ? ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] : ["", "k", "M", "G", "T"];
  let i = 0;
  for (; Math.abs(n) >= base && i < units.length - 1; i++) n /= base;
  return `${i && Math.abs(n) < 100 ? n.toFixed(1).replace(/\.0$/, "") : Math.round(n)} ${units[i]}`.trim();
}

/** written is a quantity of a signal for people; a text that is no quantity, such as 5%, stays as it is. */
export const written = (signal, quantity) => (quantity && amount(quantity) === null ? quantity : short(signal, amount(quantity)));
export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

/** span is a time in seconds for people. */
export function span(s) {
  if (s < 0.001) return `${Math.round(s * 1e6)} µs`;
  if (s < 1) return `${Math.round(s * 1e3)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

// ---- charts

/** windows are the spans of time that a chart can show, minutes. */
export const windows = [2, 5, 15];

function ticks(most, binary) {
  const unit = binary ? 1024 ** Math.floor(Math.log(Math.max(most, 1)) / Math.log(1024)) : 1;
  const rough = most / unit / 3, size = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * size).find((s) => s >= rough) * unit;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

/** Chart draws curves over the last minutes, their limits, and marks that open a dialog. */
export class Chart {
  constructor(host, { height = 150, label }) {
    Object.assign(this, { host, height, at: null });
    host.classList.add("chart");
    host.tabIndex = 0;
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", label);
    this.picture = svg("svg", { height, "aria-hidden": "true" });
    this.buttons = el("div");
    this.tip = el("div", { class: "tip", hidden: "" });
    host.append(this.picture, this.buttons, this.tip);
    new ResizeObserver(() => this.redraw()).observe(host);
    host.addEventListener("pointermove", (e) => this.point(this.time(e.clientX - host.getBoundingClientRect().left)));
    host.addEventListener("pointerleave", () => this.point(null));
    host.addEventListener("blur", () => this.point(null));
    host.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (!step || !this.data) return;
      e.preventDefault();
      const times = this.data.curves[0]?.points.filter(([t]) => t >= this.data.from).map(([t]) => t) ?? [];
      const i = times.findIndex((t) => t >= (this.at ?? Infinity));
      this.point(times[Math.max(0, Math.min(times.length - 1, (i < 0 ? times.length : i) + step))] ?? null);
    });
  }

  x(t) { return this.left + ((t - this.data.from) / (this.data.to - this.data.from)) * (this.width - this.left); }
  y(v) { return 8 + (1 - v / this.most) * (this.height - 30); }
  time(x) { return this.data ? this.data.from + ((x - this.left) / (this.width - this.left)) * (this.data.to - this.data.from) : null; }

  /** draw takes {from, to, curves: [{name, ink, points: [[ms, value|null]], area}], limits: [{value, text, ink}], marks: [{at, text, dry, open}], ahead: [ms, value], urgency, format, binary, least}. */
  draw(data) {
    this.data = data;
    this.redraw();
  }

  redraw() {
    const d = this.data;
    this.width = this.host.clientWidth;
    if (!d || !this.width) return;
    const seen = d.curves.flatMap((c) => c.points.filter(([t, v]) => t >= d.from && v !== null).map(([, v]) => v));
    this.most = 1.12 * Math.max(d.least ?? 0, ...seen, ...(d.limits ?? []).map((l) => l.value)) || 1;
    const scale = ticks(this.most, d.binary);
    this.left = 12 + 6.2 * Math.max(...scale.map((v) => d.format(v).length));
    const bottom = this.y(0), parts = [];
    for (const v of scale) {
      parts.push(svg("line", { class: "grid", x1: this.left, x2: this.width, y1: this.y(v), y2: this.y(v) }),
        svg("text", { x: this.left - 8, y: this.y(v) + 4, "text-anchor": "end" }, d.format(v)));
    }
    const minute = 60000, every = [0.5, 1, 2, 5].find((m) => ((d.to - d.from) / minute / m) * 64 <= this.width - this.left) ?? 5;
    for (let t = Math.ceil(d.from / (every * minute)) * every * minute; t < d.to; t += every * minute) {
      if (this.x(t) > this.left + 16 && this.x(t) < this.width - 24) {
        parts.push(svg("text", { x: this.x(t), y: this.height - 4, "text-anchor": "middle" }, clock(t).slice(0, every < 1 ? 8 : 5)));
      }
    }
    for (const l of d.limits ?? []) {
      parts.push(svg("rect", { class: `zone ink-${l.ink}`, x: this.left, y: this.y(l.value), width: this.width - this.left, height: bottom - this.y(l.value) }));
    }
    for (const c of d.curves) {
      const runs = this.runs(c.points);
      if (c.area) parts.push(svg("path", { class: `area ink-${c.ink}`, d: runs.map((r) => `${path(r)}V${bottom}H${r[0][0]}Z`).join("") }));
      parts.push(svg("path", { class: `curve ink-${c.ink}`, d: runs.map(path).join("") }));
    }
    const newest = d.curves[0]?.points.at(-1);
    if (d.ahead && newest && newest[1] !== null) parts.push(this.ahead(newest, d));
    let above = Infinity;
    for (const l of [...(d.limits ?? [])].sort((a, b) => a.value - b.value)) {
      const y = Math.min(this.y(l.value) - 5, above - 14);
      above = y;
      parts.push(svg("line", { class: `limit ink-${l.ink}`, x1: this.left, x2: this.width, y1: this.y(l.value), y2: this.y(l.value) }),
        svg("text", { class: `tag ink-${l.ink}`, x: this.left + 6, y }, l.text));
    }
    const marks = (d.marks ?? []).filter((m) => m.at >= d.from);
    for (const m of marks) parts.push(svg("line", { class: "stem", x1: this.x(m.at), x2: this.x(m.at), y1: 8, y2: bottom }));
    this.cross = svg("g");
    this.picture.replaceChildren(...parts, this.cross);
    keyed(this.buttons, marks.map((m) => ({ key: m.key, text: m.text, dry: m.dry })), (m) => m.key, (m) =>
      el("button", { class: m.dry ? "mark dry" : "mark", "aria-label": m.text, title: m.text, onclick: () => this.data.marks.find((now) => now.key === m.key)?.open() }));
    marks.forEach((m, i) => {
      this.buttons.children[i].style.left = `${this.x(m.at)}px`;
      this.buttons.children[i].style.top = `${bottom}px`;
    });
    this.point(this.at);
  }

  /** runs are the points in pixels, cut where no sample came for 45 s. */
  runs(points) {
    const all = [];
    let last = -Infinity;
    for (const [i, [t, v]] of points.entries()) {
      if (v === null || (points[i + 1]?.[0] ?? t) < this.data.from) { last = -Infinity; continue; }
      if (t - last > 45000) all.push([]);
      let place = [this.x(t), this.y(v)];
      if (place[0] < this.left && points[i + 1] && points[i + 1][1] !== null) { // enters the picture
        const [u, w] = points[i + 1];
        place = [this.left, this.y(v + ((w - v) * (this.data.from - t)) / (u - t))];
      }
      all.at(-1).push(place);
      last = t;
    }
    return all.filter((run) => run.length > 0);
  }

  ahead([t, v], d) {
    let [u, w] = d.ahead;
    if (u > d.to) { w = v + ((w - v) * (d.to - t)) / (u - t); u = d.to; }
    return svg("path", { class: `ahead ink-${d.urgency === "bad" ? "bad" : "off"}`, d: path([[this.x(t), this.y(v)], [this.x(u), this.y(w)]]) });
  }

  /** point shows the values at a time; null shows none. */
  point(t) {
    this.at = t;
    const d = this.data;
    const nearest = (points) => points.reduce((best, p) => (p[1] !== null && p[0] >= d.from && (!best || Math.abs(p[0] - t) < Math.abs(best[0] - t)) ? p : best), null);
    const found = t === null || !d ? [] : d.curves.map((c) => [c, nearest(c.points)]).filter(([, p]) => p);
    this.tip.hidden = found.length === 0;
    this.cross?.replaceChildren();
    if (found.length === 0) return;
    const at = found[0][1][0], x = this.x(at);
    this.cross.append(svg("line", { class: "cross", x1: x, x2: x, y1: 8, y2: this.y(0) }),
      ...found.map(([c, p]) => svg("circle", { class: `dot ink-${c.ink}`, cx: this.x(p[0]), cy: this.y(p[1]), r: 4.5 })));
    this.tip.replaceChildren(el("div", { class: "dim" }, clock(at)), el("dl", {}, found.map(([c, p]) => [el("dt", {}, c.name), el("dd", {}, d.format(p[1]))])));
    this.tip.style.left = `${x < this.width / 2 ? x + 12 : x - this.tip.offsetWidth - 12}px`;
  }
}

/** path of a run; a single point is a dash. */
const path = (run) => run.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("") + (run.length === 1 ? "h2h-4" : "");

/** rates turns samples of a total into its increase per second: [ms, value]; null where it fell. */
export function rates(samples, total) {
  return samples.slice(1).map((s, i) => {
    const was = total(samples[i]), is = total(s), seconds = (s.at - samples[i].at) / 1000;
    return [s.at, was === null || is === null || is < was || seconds <= 0 ? null : (is - was) / seconds];
  });
}

/** later appends the samples that are newer than the last one, and removes those that no window shows. */
export function later(samples, news) {
  samples.push(...(news ?? []).filter((s) => s.at > (samples.at(-1)?.at ?? 0)));
  const kept = samples.findIndex((s) => s.at > Date.now() - (windows.at(-1) + 1) * 60000);
  samples.splice(0, Math.max(0, kept));
}

/** shown is the first and the last instant of a chart, ms: a window, or the time of all samples where that is less, but at least two minutes. */
export function shown(samples, minutes) {
  const newest = samples.at(-1).at;
  return [newest - Math.min(minutes * 60000, Math.max(newest - samples[0].at, 120000)), newest];
}

// ---- the page

/** remember stores a choice for the next visit, or returns it; without storage it does neither. */
export function remember(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(`evictd-${name}`);
    localStorage.setItem(`evictd-${name}`, value);
  } catch { /* storage is off */ }
  return value;
}

/** choice shows options as a row of buttons, of which one is pressed. */
export function choice(host, name, options, text, changed) {
  let chosen = options.find((o) => String(o) === remember(name)) ?? options.at(-1);
  const press = () => [...host.children].forEach((b, i) => b.setAttribute("aria-pressed", options[i] === chosen));
  host.replaceChildren(...options.map((o) => el("button", { type: "button", onclick: () => { chosen = o; remember(name, o); press(); changed(); } }, text(o))));
  press();
  return () => chosen;
}

function theme() {
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const draw = () => $("theme").setAttribute("aria-label", dark() ? "Use the light scheme" : "Use the dark scheme");
  $("theme").append(svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" },
    svg("circle", { cx: 8, cy: 8, r: 6, fill: "none", stroke: "currentColor", "stroke-width": 1.5 }), svg("path", { d: "M8 2a6 6 0 0 1 0 12z", fill: "currentColor" })));
  $("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = remember("theme", dark() ? "light" : "dark");
    draw();
  });
  draw();
}

/** open shows a dialog. Its content may be a promise. */
export function open(title, content) {
  const body = el("div", { class: "body" }, el("p", { class: "dim" }, "…"));
  const box = el("dialog", { "aria-labelledby": "dialog-title", onclose: () => box.remove(), onclick: (e) => e.target === box && box.close() },
    el("header", {}, el("h2", { id: "dialog-title" }, title),
      el("button", { class: "icon", "aria-label": "Close", onclick: () => box.close() },
        svg("svg", { viewBox: "0 0 16 16" }, svg("path", { d: "M4 4l8 8M12 4l-8 8", stroke: "currentColor", "stroke-width": 1.5, "stroke-linecap": "round" })))),
    body);
  document.body.append(box);
  box.showModal();
  Promise.resolve(content).then((parts) => body.replaceChildren(...parts.flat().filter(Boolean)), (err) => body.replaceChildren(el("p", { class: "bad" }, err.message)));
}

/** ask gets a JSON document of the same address. */
export async function ask(path, query) {
  const answer = await fetch(`${path}?${new URLSearchParams(query)}`);
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

/** facts lists names with their values; empty values are left out. */
export const facts = (pairs) => el("dl", { class: "facts" }, pairs.filter(([, v]) => v !== undefined && v !== "" && v !== null).map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));

/** table has a row of headings: "#x" is of a column of numbers, ".x" of one that a narrow window does not show. */
export function table(headings, rows) {
  const kind = headings.map((h) => (h[0] === "#" ? "n" : h[0] === "." ? "wide" : ""));
  return el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, headings.map((h, i) => el("th", { scope: "col", class: kind[i] }, h.replace(/^[#.]/, ""))))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: kind[i] }, cell)))))));
}

/** listen calls handlers with the events of the program. It stops a minute after the page is hidden. */
export function listen(handlers) {
  let source, received = 0, pause = 500, timer;
  const state = (text, kind) => { $("live").textContent = text; $("live").className = `chip ${kind}`; };
  const stop = () => { clearTimeout(timer); source?.close(); source = null; };
  const start = () => {
    stop();
    received = Date.now();
    source = new EventSource("v1/events");
    for (const [name, handle] of Object.entries({ ...handlers, fault })) {
      source.addEventListener(name, (e) => {
        received = Date.now();
        pause = 500;
        state("live", "good live");
        if (name !== "fault") $("fault").hidden = true;
        handle(JSON.parse(e.data));
      });
    }
    source.addEventListener("error", () => {
      state("reconnecting", "warn");
      if (source?.readyState !== EventSource.CLOSED) return; // the browser connects again
      timer = setTimeout(start, pause);
      pause = Math.min(2 * pause, 15000);
    });
  };
  function fault(text) {
    $("fault").hidden = false;
    $("fault").textContent = text;
  }
  theme();
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (!document.hidden && !source) start();
    if (document.hidden) timer = setTimeout(stop, 60000);
  });
  setInterval(() => { if (source && Date.now() - received > 12000) { state("reconnecting", "warn"); start(); } }, 4000);
  start();
}
