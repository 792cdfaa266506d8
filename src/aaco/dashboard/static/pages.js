"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const stored = (value) => {
    try { return value ? localStorage.setItem("aaco-theme", value) : localStorage.getItem("aaco-theme"); }
    catch (error) { return null; }  // a browser may refuse storage; then the system's theme is taken
  };
  const asked = stored();
  if (asked === "light" || asked === "dark") root.style.colorScheme = asked;  // before the page is painted
  const dark = () => (root.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

  const theme = () => {
    const button = document.getElementById("theme");
    const name = () => { button.textContent = dark() ? "Light theme" : "Dark theme"; };
    button.hidden = false;
    name();
    button.addEventListener("click", () => {
      root.style.colorScheme = dark() ? "light" : "dark";
      stored(root.style.colorScheme);
      name();
      document.dispatchEvent(new Event("theme"));
    });
  };

  // A choice in a form of filters is applied at once; words when Enter is pressed.
  const forms = () => document.addEventListener("change", (event) => {
    if (event.target.matches("form.find select")) event.target.form.requestSubmit();
  });

  // A part that must not grow old is fetched anew, unless somebody is at work in it.
  const refresh = () => {
    const part = document.getElementById("fresh");
    if (!part) return;
    const busy = () => document.hidden || part.querySelector(":checked:not(option)") || part.contains(document.activeElement);
    setInterval(async () => {
      if (busy()) return;
      const answer = await fetch(location.href).catch(() => null);
      if (!answer || !answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("fresh");
      if (next && !busy() && next.innerHTML !== part.innerHTML) part.replaceChildren(...next.childNodes);
    }, 1000 * part.dataset.every);
  };

  // Perfetto's pages take a whole address, of this very server, and what to do once the trace is open.
  const EXPANDED = JSON.stringify([{ id: "dev.perfetto.ExpandTracksByRegex", args: [".*"] }]);
  const timeline = () => {
    for (const frame of document.querySelectorAll("iframe[data-trace]")) {
      frame.src = `/perfetto/#!/?url=${encodeURIComponent(location.origin + frame.dataset.trace)}&hideSidebar=true&startupCommands=${encodeURIComponent(EXPANDED)}`;
    }
  };

  document.addEventListener("DOMContentLoaded", () => { theme(); forms(); refresh(); timeline(); });
})();
