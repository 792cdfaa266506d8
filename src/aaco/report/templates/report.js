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

  // A link to what is folded away unfolds it.
  const unfold = () => {
    const folded = document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest("details");
    if (folded) folded.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();

  // Tips: what a mark's <title> or an element's title says, at once: beside the pointer, and beside what has the focus.
  // Whoever hears the page is told the same as a description.
  const tip = document.getElementById("tip");
  for (const title of document.querySelectorAll("svg title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  for (const one of document.querySelectorAll("main [title]")) {
    one.dataset.tip = one.title;
    one.setAttribute("aria-description", one.title);
    one.removeAttribute("title");
  }
  const place = (text, x, y) => {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    tip.style.left = `${Math.max(8, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(8, Math.min(y, innerHeight - tip.offsetHeight - 8))}px`;
  };
  const tipped = (target) => target.closest && target.closest("[data-tip]");
  document.addEventListener("pointermove", (event) => {
    const mark = tipped(event.target);
    place(mark && mark.dataset.tip, event.clientX + 14, event.clientY + 14);
  });
  document.addEventListener("focusin", (event) => {
    const mark = event.target.matches(":focus-visible") && tipped(event.target);
    const box = event.target.getBoundingClientRect();
    place(mark && mark.dataset.tip, box.left, box.bottom + 6);
  });
  document.addEventListener("focusout", () => place(""));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") place(""); });

  // The flame graph: a frame fills the width when it is clicked; arrow keys walk, Enter widens, Escape goes back.
  const flame = document.querySelector("#fig-flame_graph .drawing");
  if (flame) {
    const svg = flame.querySelector("svg"), figure = flame.parentNode;
    const frames = [...svg.querySelectorAll("rect.frame")].map((rect) => ({
      rect, x: +rect.getAttribute("x"), y: +rect.getAttribute("y"), width: +rect.getAttribute("width"),
      label: rect.nextElementSibling && rect.nextElementSibling.tagName === "text" ? rect.nextElementSibling : null,
    }));
    const whole = frames[0];
    const said = document.createElement("p");
    said.className = "picked-text";
    said.setAttribute("aria-live", "polite");
    figure.insertBefore(said, figure.querySelector("figcaption"));
    flame.setAttribute("role", "application");
    flame.setAttribute("aria-label", "Flame graph. Arrow keys go from frame to frame, Enter widens one, Escape the whole.");
    let picked = whole;
    const pick = (frame) => {
      if (!frame) return;
      picked.rect.classList.remove("picked");
      picked = frame;
      picked.rect.classList.add("picked");
      said.textContent = picked.rect.dataset.tip;
    };
    const inside = (frame, other) => other.x >= frame.x - 0.01 && other.x + other.width <= frame.x + frame.width + 0.01;
    const widen = (frame) => {
      const scale = whole.width / frame.width;
      for (const one of frames) {
        const above = one.y < frame.y && inside(one, frame);
        const seen = above || (one.y >= frame.y && inside(frame, one));
        const x = above ? whole.x : whole.x + (one.x - frame.x) * scale, width = above ? whole.width : one.width * scale;
        one.rect.style.display = seen ? "" : "none";
        one.rect.setAttribute("x", x);
        one.rect.setAttribute("width", Math.max(0, width));
        if (one.label) one.label.style.display = "none";
        const letters = Math.floor((width - 8) / 7.2), name = one.rect.dataset.tip.replace(/: [^:]*$/, "");
        if (!seen || letters < 4) continue;
        if (!one.label) {
          one.label = document.createElementNS("http://www.w3.org/2000/svg", "text");
          one.label.setAttribute("class", "ink small");
          one.label.setAttribute("y", one.y + 14);
          one.rect.after(one.label);
        }
        one.label.style.display = "";
        one.label.setAttribute("x", x + 4);
        one.label.textContent = name.length <= letters ? name : `${name.slice(0, letters - 1)}\u2026`;
      }
    };
    const hit = (target) => frames.find((one) => one.rect === target || one.label === target);
    const beside = (key) => {
      const shown = frames.filter((one) => one.rect.style.display !== "none");
      const row = (y) => shown.filter((one) => Math.abs(one.y - y) < 1);
      const step = frames.length > 1 ? frames[1].y - frames[0].y : 0;
      if (key === "ArrowUp") return row(picked.y - step).find((one) => inside(one, picked));
      if (key === "ArrowDown") return row(picked.y + step).find((one) => inside(picked, one));
      const line = row(picked.y), at = line.indexOf(picked) + (key === "ArrowRight" ? 1 : -1);
      return line[at];
    };
    svg.addEventListener("click", (event) => { const one = hit(event.target); if (one) { pick(one); widen(one); } });
    flame.addEventListener("keydown", (event) => {
      if (event.key.startsWith("Arrow")) pick(beside(event.key));
      else if (event.key === "Enter") widen(picked);
      else if (event.key === "Escape") { pick(whole); widen(whole); }
      else return;
      event.preventDefault();
    });
    for (const one of frames) if (one.label) one.label.style.pointerEvents = "none";
  }

  // Plots.
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
  const drawOutliers = (plot) => {
    const { left, top, width, height } = plot.bbox, ctx = plot.ctx, ratio = devicePixelRatio;
    ctx.save();
    ctx.fillStyle = colour("card"); ctx.strokeStyle = colour("ink"); ctx.lineWidth = 1.25 * ratio;
    ctx.font = `${11 * ratio}px system-ui, sans-serif`; ctx.textAlign = "center"; ctx.textBaseline = "bottom";
    data.outliers.forEach((one, index) => {
      const x = plot.valToPos(one.turn, "x", true), y = plot.valToPos(one.latency, "y", true);
      if (x < left || x > left + width || y < top || y > top + height) return;
      ctx.beginPath(); ctx.arc(x, y, 3.5 * ratio, 0, 2 * Math.PI); ctx.fill(); ctx.stroke();
      ctx.save(); ctx.fillStyle = colour("ink"); ctx.fillText(index + 1, x, y - 5 * ratio); ctx.restore();
    });
    ctx.restore();
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
        }))], { hooks: { drawClear: [shadeWarmup], draw: [drawMedian, drawOutliers] } }),
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
