"use strict";
(() => {
  const part = document.getElementById("live");
  const show = (id, text) => { const one = document.getElementById(id); if (one.textContent !== text) one.textContent = text; };
  const MOST = 600;  // latencies kept
  const latencies = [];
  let before = null, plot = null;

  // A time in the unit that fits it, three digits.
  const time = (ms) => (ms === undefined || ms === null ? "–" : ms >= 1000 ? `${(ms / 1000).toPrecision(3)} s`
    : ms >= 1 ? `${ms.toPrecision(3)} ms` : `${(1000 * ms).toPrecision(3)} us`);

  // Of the listed latencies those that came since the last event; more than are listed may have come.
  const take = (now) => {
    const same = before && before.session_id === now.session_id && before.processes_begun === now.processes_begun;
    const fresh = same ? now.done - before.done : now.recent_ms.length;
    if (fresh > 0) latencies.push(...now.recent_ms.slice(-fresh));
    latencies.splice(0, latencies.length - MOST);
  };
  const rate = (now, at) => (before && now.processes_begun === before.processes_begun && now.done > before.done
    ? (1000 * (now.done - before.done)) / (at - before.at) : null);

  const doing = (now) => {
    if (now.status !== "running") return `The run is ${now.status}${now.failure ? `: ${now.failure}` : ""}`;
    if (!now.phase) return "Preparing";
    if (now.planned && now.done >= now.planned) {
      return now.processes_begun >= now.processes ? "Measured; profiling and explaining" : "Starting the next process";
    }
    return now.phase === "warmup" ? "Warming up" : "Measuring";
  };
  const far = (now, speed) => {
    if (!now.planned) return now.done ? `${now.done.toLocaleString("en")} done` : "";
    const left = speed && now.done < now.planned ? `, about ${Math.ceil((now.planned - now.done) / speed)} s left in this process` : "";
    return `${now.done.toLocaleString("en")} of ${now.planned.toLocaleString("en")}${left}`;
  };

  const draw = () => {
    const scale = latencies.length && Math.max(...latencies) < 1 ? 1000 : 1;
    const data = [latencies.map((_, index) => index - latencies.length + 1), latencies.map((one) => one * scale)];
    if (plot && plot.scaled === scale) { plot.setData(data); return; }
    if (plot) plot.destroy();
    const axis = (label, size) => ({ label, size, stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 },
      ticks: { stroke: colour("line"), width: 1 }, font: "11px system-ui", labelFont: "12px system-ui", labelSize: 20, labelGap: 0 });
    const place = document.getElementById("plot");
    plot = new uPlot({ width: place.clientWidth, height: 280, scales: { x: { time: false } }, legend: { show: false },
      cursor: { show: false }, axes: [axis("inferences before the newest", 34), axis(scale === 1 ? "latency, ms" : "latency, us", 52)],
      series: [{}, { stroke: colour("c0"), width: 1.25, points: { show: latencies.length < 100, size: 4 } }] }, data, place);
    plot.scaled = scale;
  };
  const again = () => { if (plot) { plot.destroy(); plot = null; draw(); } };
  document.addEventListener("theme", again);
  addEventListener("resize", () => plot && plot.setSize({ width: document.getElementById("plot").clientWidth, height: 280 }));

  const tell = (event) => {
    const now = JSON.parse(event.data), at = performance.now();
    take(now);
    const speed = rate(now, at);
    show("doing", doing(now));
    show("far", far(now, speed));
    show("median", time(now.median_ms));
    show("newest", time(now.recent_ms.at(-1)));
    if (speed) show("rate", speed.toPrecision(3));
    show("process", now.processes_begun ? `${now.processes_begun} of ${now.processes}` : "–");
    const bar = document.getElementById("done");
    bar.max = now.planned || 1;
    bar.value = now.planned ? now.done : 0;
    document.getElementById("beat").hidden = now.status !== "running";
    if (latencies.length) draw();
    before = { ...now, at };
  };

  const stream = new EventSource(`/api/v1${part.dataset.session}/events`);
  stream.addEventListener("progress", tell);
  stream.addEventListener("ended", (event) => {
    stream.close();
    tell(event);
    const link = document.createElement("a");
    link.href = part.dataset.session;
    link.textContent = "Its answers";
    const line = document.createElement("p");
    line.className = "big";
    line.append(link);
    document.getElementById("h-live").after(line);
  });
  stream.addEventListener("error", () => {
    if (stream.readyState !== EventSource.CLOSED) show("far", "The server does not answer; trying again");
    else show("doing", "The server does not tell of this run");
  });
})();
