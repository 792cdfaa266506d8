"use strict";
(() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const plots = new Map();
  root.classList.add("js");

  // Theme: the system's, unless the reader chose; a page opened from a file may have no storage.
  const dark = () => getComputedStyle(root).colorScheme === "dark" ||
    (getComputedStyle(root).colorScheme.includes("light dark") && matchMedia("(prefers-color-scheme: dark)").matches);
  const theme = document.getElementById("theme");
  const stored = (value) => {
    try { return value ? localStorage.setItem("aaco-theme", value) : localStorage.getItem("aaco-theme"); }
    catch (error) { return null; }
  };
  const show = (scheme) => {
    if (scheme === "light" || scheme === "dark") root.style.colorScheme = scheme;
    theme.textContent = dark() ? "Light theme" : "Dark theme";
    drawAll();
  };
  theme.addEventListener("click", () => { const next = dark() ? "light" : "dark"; stored(next); show(next); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show());

  // Tables: every header becomes a button that sorts by the cells' data-v, or by their text.
  const valueOf = (row, index) => {
    const cell = row.cells[index];
    return cell.dataset.v === undefined ? cell.textContent.trim().toLowerCase() : Number(cell.dataset.v);
  };
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const sortBy = (table, header, index) => {
    const first = table.tBodies[0].rows[0];
    const numeric = first && first.cells[index].dataset.v !== undefined;
    const order = header.ariaSort === (numeric ? "descending" : "ascending") ? (numeric ? "ascending" : "descending")
      : (numeric ? "descending" : "ascending");
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...table.tBodies[0].rows].sort((a, b) => sign * compare(valueOf(a, index), valueOf(b, index)));
    for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", order);
    table.tBodies[0].append(...rows);
  };
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((header, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => sortBy(table, header, index));
    });
  }
  const textOf = (row) => [row.textContent, ...[...row.querySelectorAll("[title]")].map((one) => one.title)]
    .join(" ").toLowerCase();
  for (const input of document.querySelectorAll("[data-filter]")) {
    const rows = [...document.getElementById(input.dataset.filter).tBodies[0].rows];
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      for (const row of rows) row.hidden = !textOf(row).includes(wanted);
    });
  }

  // Tips: what an SVG mark's <title> says, shown at once and beside the pointer.
  const tip = document.getElementById("tip");
  for (const title of document.querySelectorAll("svg title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest && event.target.closest("[data-tip]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  });

  // Plots. uPlot paints on a canvas, so it needs the colours that the variables stand for.
  const colour = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const number = (value) => value.toPrecision(4);
  const shown = (value, text) => (value == null ? "--" : text(value));
  const latency = (_, value) => shown(value, () => `${number(value)} ${data.unit}`);
  const axis = (label, more) => ({
    label, stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 },
    font: "11px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 20, labelGap: 0, ...more,
  });
  const across = (label) => axis(label, { size: 32 });
  const up = (label) => axis(label, { size: 46 });
  const base = (id, title, axes, series, more) => ({
    id: `plot-${id}`, title, width: 600, height: 280, axes, series, scales: { x: { time: false } },
    cursor: { points: { size: 6 }, drag: { x: true, y: false } }, legend: { live: true }, ...more,
  });

  const shadeWarmup = (plot) => {
    const { left, top, height } = plot.bbox;
    const edge = Math.min(Math.max(plot.valToPos(data.warmup - 0.5, "x", true), left), left + plot.bbox.width);
    plot.ctx.fillStyle = colour("shade");
    if (data.warmup) plot.ctx.fillRect(left, top, edge - left, height);
  };
  const drawMedian = (plot) => {
    if (data.median === null) return;
    const { left, top, width, height } = plot.bbox, at = plot.valToPos(data.median, "y", true);
    if (at < top || at > top + height) return;
    const ctx = plot.ctx, ratio = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("ink");
    ctx.setLineDash([5 * ratio, 4 * ratio]);
    ctx.beginPath(); ctx.moveTo(left, at); ctx.lineTo(left + width, at); ctx.stroke();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`; ctx.textAlign = "right"; ctx.textBaseline = "bottom";
    ctx.setLineDash([]); ctx.lineWidth = 4 * ratio; ctx.strokeStyle = colour("card");
    ctx.strokeText(`median ${number(data.median)} ${data.unit}`, left + width - 4 * ratio, at - 3 * ratio);
    ctx.fillText(`median ${number(data.median)} ${data.unit}`, left + width - 4 * ratio, at - 3 * ratio);
    ctx.restore();
  };
  const builders = {
    latency_series: () => [
      base("series", "Latency by iteration", [across("iteration of the process"), up(`latency, ${data.unit}`)],
        [{ label: "iteration" }, ...data.series.map((one) => ({
          label: data.series.length > 1 ? `process ${one.process}` : "latency", stroke: colour(`c${one.process % 8}`),
          width: 1.25, spanGaps: true, points: { show: one.turn.length < 200, size: 4 },
          value: latency,
        }))], { hooks: { drawClear: [shadeWarmup], draw: [drawMedian] } }),
      uPlot.join(data.series.map((one) => [one.turn, one.latency])),
    ],
    latency_histogram: () => {
      const { edges, counts } = data.histogram;
      const range = [edges[0], edges[edges.length - 1]];
      return [
        base("histogram", "Distribution", [across(`latency, ${data.unit}`), up("iterations")], [
          { label: "from", value: latency },
          { label: "iterations", stroke: colour("c0"), fill: colour("c0"), points: { show: false },
            paths: uPlot.paths.bars({ align: 1, size: [1, Infinity], gap: 1 }) },
        ], { scales: { x: { time: false, range: (_, low, high) => (low === edges[0] ? range : [low, high]) }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.05)] } },
          cursor: { sync: { key: "latency" }, points: { show: false } } }),
        [edges.slice(0, -1), counts.map((count) => count || null)],
      ];
    },
    ecdf: () => [
      base("ecdf", "Cumulative distribution", [across(`latency, ${data.unit}`), up("% of iterations")], [
        { label: "latency", value: latency },
        { label: "at most this", stroke: colour("c0"), width: 1.75, points: { show: false },
          paths: uPlot.paths.stepped({ align: 1 }), value: (_, value) => shown(value, () => `${value.toFixed(1)} %`) },
      ], { scales: { x: { time: false }, y: { range: [0, 100] } }, cursor: { sync: { key: "latency" } } }),
      [data.ecdf.latency, data.ecdf.pct],
    ],
  };
  function drawAll() {
    for (const holder of document.querySelectorAll(".plot[data-plot]")) {
      const id = holder.dataset.plot;
      if (plots.has(id)) plots.get(id).destroy();
      const [options, values] = builders[id]();
      options.width = Math.max(260, holder.clientWidth);
      plots.set(id, new uPlot(options, values, holder));
    }
  }
  for (const button of document.querySelectorAll("[data-reset]")) {
    button.addEventListener("click", () => {
      const plot = plots.get(button.dataset.reset);
      if (plot) plot.setData(plot.data, true);
    });
  }
  new ResizeObserver(() => {
    for (const holder of document.querySelectorAll(".plot[data-plot]")) {
      const plot = plots.get(holder.dataset.plot);
      const width = Math.max(260, holder.clientWidth);
      if (plot && plot.width !== width) plot.setSize({ width, height: plot.height });
    }
  }).observe(document.querySelector("main"));

  show(stored());
})();
