// The charts: uPlot draws the numbers of /data/scores and /data/flow in the colours of the page.
"use strict";
(() => {
  const HEIGHT = 220;
  const hosts = [...document.querySelectorAll("[data-chart]")];
  if (!hosts.length) return;
  const charts = new Map();
  const canvas = document.createElement("canvas").getContext("2d");

  function color(name) { // the value of a custom property in the current colour scheme, in the canvas's syntax
    const probe = document.body.appendChild(document.createElement("i"));
    probe.className = "probe";
    probe.style.color = `var(--${name})`;
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }
  const soft = (value) => { canvas.fillStyle = value; return canvas.fillStyle + "2e"; };

  const FLOW = {
    throughput: [["events/s", "throughput", "t0", true]],
    lag: [["seconds", "lag_seconds", "t1", true]],
    latency: [["event to score, p50", "scored_p50", "t0"], ["event to score, p99", "scored_p99", "t3"], ["score to reader, p50", "visible_p50", "t2"]],
    fill: [["events", "fill", "t2", true]],
  };

  const clock = (at) => (at == null ? "–" : new Date(1000 * at).toISOString().slice(11, 19));

  const TIME = { label: "at", value: (_, at) => clock(at), values: (_, ticks) => ticks.map(clock) };

  function options(host, series, x) {
    const axis = () => ({ stroke: color("muted"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" });
    return {
      width: host.clientWidth, height: HEIGHT, series: [x, ...series],
      scales: { x: { time: !!x.values }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, 1e-9) * 1.08] } },
      axes: [x.values ? { ...axis(), values: x.values, space: 90 } : axis(), { ...axis(), size: 58 }],
      padding: [12, 14, 0, 0], cursor: { y: false, points: { size: 6 } }, legend: { live: true },
    };
  }

  function draw(host, data, series, x, key) {
    const chart = charts.get(host);
    if (chart && chart.key === key) return chart.plot.setData(data);
    chart?.plot.destroy();
    charts.set(host, { key, plot: new uPlot(options(host, series, x), data, host) });
  }

  function line(label, tone, filled) {
    const stroke = color(tone);
    return { label, stroke, width: 2, fill: filled ? soft(stroke) : undefined, spanGaps: false, points: { show: false } };
  }

  function drawFlow(host, figures) {
    const wanted = FLOW[host.dataset.chart];
    const series = wanted.map(([label, , tone, filled]) => line(label, tone, filled));
    draw(host, [figures.x, ...wanted.map(([, column]) => figures.columns[column])], series, TIME, "flow");
  }

  function drawScores(host, figures) {
    const steps = uPlot.paths.stepped({ align: 1 });
    const series = figures.lines.map((each) => ({
      ...line(each.label, `t${each.tone % 6}`, true), paths: steps,
      value: (_, share) => (share == null ? "–" : (100 * share).toFixed(1) + " %"),
    }));
    const x = { label: "score from", value: (_, at) => (at == null ? "–" : at.toPrecision(3)) };
    const edges = figures.x.length ? [...figures.x, figures.x.at(-1) + figures.step] : [];
    const data = [edges, ...figures.lines.map((each) => [...each.values, each.values.at(-1) ?? null])];
    if (figures.lines.length) draw(host, data, series, x, JSON.stringify(figures.lines.map((each) => [each.label, each.tone])));
  }

  async function update() {
    const scores = hosts.some((host) => host.dataset.chart === "scores");
    const figures = await (await fetch(scores ? "/data/scores" : "/data/flow")).json();
    for (const host of hosts) (scores ? drawScores : drawFlow)(host, figures);
  }

  function redraw() {
    for (const { plot } of charts.values()) plot.destroy();
    charts.clear();
    update().catch(() => {});
  }
  document.addEventListener("changed", () => update().catch(() => {}));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => charts.forEach(({ plot }, host) => plot.setSize({ width: host.clientWidth, height: HEIGHT }))).observe(hosts[0]);
  update().catch(() => {});
})();
