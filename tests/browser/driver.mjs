// Drives Debian's Chromium for tests: one order per line of standard input as JSON, one answer per line of standard output.
// An order is {page, verb, ...}; an answer {value} or {error}. Pages are counted from 0 in the order they were opened.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const WAIT_MS = 60_000; // only a failure waits that long; a busy machine paints seconds late
const LOCAL = new Set(["127.0.0.1", "localhost", "[::1]", ""]);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const [executablePath, userDataDir] = process.argv.slice(2);
const pages = [];

// No name but this machine's resolves: a page that asks for anything else fails, and is seen asking.
const browser = await chromium.launch({ executablePath, headless: true, args: ["--no-sandbox", "--disable-gpu",
  "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
  `--disk-cache-dir=${userDataDir}`, "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"] });

// What a user points at: {role, name}, {label}, {text} or, where nothing visible names it, {selector}; {nth} of several.
const found = (page, { role, name, label, text, selector, exact = false, nth = 0, frame }) => {
  const where = frame ? page.frameLocator(frame) : page;
  const all = role ? where.getByRole(role, { name, exact }) : label ? where.getByLabel(label, { exact })
    : text ? where.getByText(text, { exact }) : where.locator(selector ?? "body");
  return all.nth(nth);
};

const verbs = {
  async open(_, { url, dark = false, width = 1280, height = 800, script = true }) {
    const context = await browser.newContext({ colorScheme: dark ? "dark" : "light", viewport: { width, height },
      javaScriptEnabled: script, reducedMotion: "reduce" });
    const page = await context.newPage();
    const seen = { page, context, requests: [], refused: [], errors: [] };
    context.on("request", (request) => seen.requests.push(request.url()));
    // What the page's own policy forbids is never sent.
    context.on("requestfailed", (request) => { if (request.failure()?.errorText === "csp") seen.refused.push(request.url()); });
    page.on("console", (line) => { if (line.type() === "error") seen.errors.push(line.text()); });
    page.on("pageerror", (error) => seen.errors.push(String(error)));
    page.setDefaultTimeout(WAIT_MS);
    pages.push(seen);
    const answer = await page.goto(url, { waitUntil: "load", timeout: WAIT_MS });
    return { page: pages.length - 1, status: answer?.status() ?? 0 };
  },
  async goto({ page }, { url }) { return (await page.goto(url, { waitUntil: "load" }))?.status() ?? 0; },
  async reload({ page }) { await page.reload({ waitUntil: "load" }); },
  async back({ page }) { await page.goBack({ waitUntil: "load" }); },
  async click({ page }, what) { await found(page, what).click(); },
  async hover({ page }, what) { await found(page, what).hover(); },
  async fill({ page }, { value, ...what }) { await found(page, what).fill(value); },
  async select({ page }, { value, ...what }) { await found(page, what).selectOption({ label: value }); },
  async press({ page }, { key, times = 1 }) { for (let n = 0; n < times; n++) await page.keyboard.press(key); },
  // The text as a user sees it: nothing hidden, nothing that only the markup says.
  async text({ page }, what) { return await found(page, what).innerText(); },
  async texts({ page }, { selector }) { return await page.locator(selector).filter({ visible: true }).allInnerTexts(); },
  async visible({ page }, what) { return await found(page, what).isVisible(); },
  async wait({ page }, { seconds = WAIT_MS / 1000, gone = false, ...what }) {
    const state = gone ? "hidden" : "visible";
    await found(page, what).waitFor({ state, timeout: 1000 * seconds });
  },
  async wait_address({ page }, { contains, seconds = WAIT_MS / 1000 }) {
    await page.waitForURL((url) => url.href.includes(contains), { timeout: 1000 * seconds });
  },
  async focused({ page }) {
    return await page.evaluate(() => { const one = document.activeElement;
      return (one?.getAttribute("aria-label") || one?.labels?.[0]?.firstChild?.textContent || one?.innerText || one?.getAttribute("name") || one?.tagName || "").trim(); });
  },
  async evaluate({ page }, { script, frame }) {
    return await (frame ? page.frameLocator(frame).locator("html").evaluate(script) : page.evaluate(script));
  },
  async screenshot({ page }, { path, full = false, quality }) {
    await page.screenshot({ path, fullPage: full, animations: "disabled", ...(quality ? { type: "jpeg", quality } : {}) });
  },
  async appearance({ page }, { dark = null, width, height, print = null }) {
    if (width) await page.setViewportSize({ width, height });
    await page.emulateMedia({ ...(dark === null ? {} : { colorScheme: dark ? "dark" : "light" }),
      ...(print === null ? {} : { media: print ? "print" : "screen" }) });
  },
  // Milliseconds from the start of the navigation until everything is loaded and painted twice.
  async ready({ page }) {
    return await page.evaluate(async () => {
      if (document.readyState !== "complete") await new Promise((done) => addEventListener("load", done));
      await document.fonts.ready;
      for (let n = 0; n < 2; n++) await new Promise((done) => requestAnimationFrame(done));
      return performance.now();
    });
  },
  // What axe-core finds, of all its rules, at the impacts asked for.
  async axe({ page }, { impacts = ["serious", "critical"] }) {
    await page.evaluate(axe);
    const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
    return found.violations.filter(({ impact }) => impacts.includes(impact)).map(({ id, impact, help, nodes }) =>
      ({ id, impact, help, nodes: nodes.slice(0, 5).map((node) => `${node.target.join(" ")}: ${node.html.slice(0, 160)}`) }));
  },
  async address({ page }) { return page.url(); },
  async title({ page }) { return await page.title(); },
  async errors({ errors }) { return errors; },
  async requests({ requests }) { return requests; },
  async external({ requests, refused }) {
    return requests.filter((url) => !refused.includes(url) && /^(https?|wss?):/.test(url) && !LOCAL.has(new URL(url).hostname));
  },
  async close({ context }) { await context.close(); },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { page, verb, ...order } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await verbs[verb](pages[page], order)) ?? null };
  } catch (error) {
    answer = { error: String(error.message ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
