// Looks at the demo's world as people do. Needs URL, TOOLS and CHROMIUM; see the script beside it.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { URL: origin, TOOLS, CHROMIUM, SHOTS } = process.env;
const require = createRequire(`${TOOLS}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const DESK = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });

// A page of which every complaint counts.
const open = async (path, { withScript = true, ...options } = {}) => {
  const context = await browser.newContext({ viewport: DESK, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  // NOTE: where no script runs at all, axe doesn't either.
  if (!withScript) await page.route("**/*.js", (route) => route.fulfill({ contentType: "text/javascript", body: "" }));
  page.complaints = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) page.complaints.push(message.text());
  });
  page.on("pageerror", (error) => page.complaints.push(error.message));
  const response = await page.goto(origin + path);
  assert.equal(response.status(), 200, path);
  return page;
};

const close = async (page) => {
  assert.deepEqual(page.complaints, [], page.url());
  await page.context().close();
};

const shoot = async (page, name, options = {}) => {
  if (!SHOTS) return;
  mkdirSync(SHOTS, { recursive: true });
  await page.screenshot({ path: `${SHOTS}/${name}.png`, ...options });
};

const told = [];
const check = async (what, test) => {
  await test();
  told.push(what);
};

const dropping = "/?dropped=yes&kind=BucketSet";
const deleting = "tr:has-text('will be deleted') th a";

await check("from the list to what a step did to a resource", async () => {
  const page = await open(dropping);
  await page.click(deleting);
  await page.waitForSelector(".matrix");
  await page.click("tr:has-text('bucket-b') td.dropped a.cell");
  const panel = page.locator("aside.peek");
  await panel.waitFor();
  assert.match(await panel.innerText(), /What tidy did[\s\S]*bucket-b[\s\S]*item: bucket-b/);
  await shoot(page, "peek");
  const boxes = await Promise.all([panel, page.locator(".cell[aria-current]")].map((each) => each.boundingBox()));
  assert.ok(boxes[1].x + boxes[1].width <= boxes[0].x, `the panel covers its cell: ${JSON.stringify(boxes)}`);
  await page.keyboard.press("Escape");
  assert.equal(await panel.count(), 0);
  const focused = await page.evaluate(() => document.activeElement.title);
  assert.match(focused, /bucket-b in tidy: dropped/);
  await close(page);
});

await check("a look into a cell is an address: handed on, and gone with Back", async () => {
  for (const viewport of [DESK, { width: 800, height: 900 }, PHONE]) {
    const page = await open(dropping, { viewport });
    await page.click(deleting);
    await page.click("tr:has-text('bucket-b') td.dropped a.cell");
    await page.waitForSelector("aside.peek");
    const shared = page.url();
    assert.match(shared, /#cell=1&resource=bucket-b$/);
    const other = page.locator("tr:has-text('bucket-a') td.added a.cell");
    await other.focus();
    await page.keyboard.press("Enter");
    await page.waitForURL(/#cell=0&resource=bucket-a$/);
    await page.waitForSelector("aside.peek:has-text('bucket-a')");
    await page.goBack();
    await page.waitForSelector("aside.peek", { state: "detached" });
    assert.doesNotMatch(page.url(), /#cell/);
    await page.goForward();
    await page.waitForSelector("aside.peek:has-text('bucket-a')");
    await close(page);

    const path = shared.slice(origin.length);
    const visitor = await open(path, { viewport });
    await visitor.waitForSelector("aside.peek:has-text('bucket-b')");
    const [panel, cell] = await Promise.all(["aside.peek", ".cell[aria-current]"].map((each) => visitor.locator(each).boundingBox()));
    const isFree = cell.x + cell.width <= panel.x + 1 || cell.y + cell.height <= panel.y + 1;
    assert.ok(isFree, `the panel covers its cell: ${JSON.stringify([panel, cell])}`);
    await shoot(visitor, `peek-${viewport.width}`);
    await visitor.click("aside.peek >> text=Close");
    assert.equal(await visitor.locator("aside.peek").count(), 0);
    assert.doesNotMatch(visitor.url(), /#cell/);
    await close(visitor);
  }
});

await check("resources narrowed by name while somebody types", async () => {
  const page = await open("/trace/Network%2Fprod-net");
  const rows = page.locator(".matrix tbody tr");
  const before = await rows.count();
  await page.locator("[data-narrow]").pressSequentially("subnet-public");
  await page.waitForFunction((count) => document.querySelectorAll(".matrix tbody tr").length < count, before);
  for (const name of await rows.locator("th .name").allInnerTexts()) assert.match(name, /subnet-public/);
  await page.waitForURL(/name=subnet-public/);
  assert.ok(await page.locator("[data-narrow]").evaluate((input) => input === document.activeElement));
  await close(page);
});

await check("the same without scripts, page by page", async () => {
  const page = await open(dropping, { javaScriptEnabled: false });
  await page.click(deleting);
  await page.click("tr:has-text('bucket-b') td.dropped a.cell");
  await page.waitForURL(/\/step\/1\?resource=bucket-b#did$/);
  assert.match(await page.locator("#did").innerText(), /bucket-b[\s\S]*item: bucket-b/);
  await page.click("#did a.name");
  assert.match(await page.locator("main").innerText(), /It will be deleted: step tidy drops it/);
  await close(page);
});

await check("from a link in a span to the payload, and back to its step", async () => {
  const list = await open(dropping);
  await list.click(deleting);
  // As `crossplane.request.url` has it: the object's key and a pointer into it.
  const object = await list.locator(".facts a[href^='/open?key=']").getAttribute("href");
  await close(list);
  const link = object.replace(/pointer=$/, "pointer=/steps/1/request");
  const page = await open(link);
  assert.match(await page.locator("h1").innerText(), /tidy request/);
  assert.match(await page.locator(".yaml").innerText(), /bucket-b:/);
  await page.fill("main input[type=search]", "drop(");
  await page.press("main input[type=search]", "Enter");
  await page.click(".hits a");
  assert.match(await page.locator("main").innerText(), /drop\('bucket-b'\)/);
  await page.click("text=Its step");
  await page.waitForURL(/\/step\/1$/);
  await close(page);
});

await check("by keys alone", async () => {
  const page = await open(dropping);
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".matrix");
  await page.focus(".matrix tbody tr:nth-child(2) a.cell");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowRight");
  assert.match(await page.evaluate(() => document.activeElement.title), /bucket-b in tidy/);
  await page.keyboard.press("Enter");
  await page.waitForSelector("aside.peek");
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  assert.ok(await page.locator("dialog.help").isVisible());
  await close(page);
});

await check("a payload that is searched and folded", async () => {
  const page = await open("/trace/BucketSet%2Fassets/step/1");
  const request = page.locator("#request");
  await request.locator("[data-search]").fill("crossplane.io");
  await page.keyboard.press("Enter");
  const found = await page.evaluate(() => [CSS.highlights.get("found").size, CSS.highlights.get("here").size]);
  assert.ok(found[0] > 1 && found[1] === 1, `${found}`);
  await request.locator("[data-expand]").click();
  assert.equal(await request.locator("details:not([open])").count(), 0);
  await close(page);
});

await check("every reconcile of the list", async () => {
  const page = await open("/");
  const traces = new Set();
  for (let older = "/"; older; ) {
    await page.goto(origin + older);
    const links = await page.locator(".list th a").evaluateAll((found) => found.map((link) => link.getAttribute("href")));
    links.forEach((link) => traces.add(link));
    older = await page.locator(".pages a[rel=next]").evaluateAll((found) => found[0]?.getAttribute("href"));
  }
  assert.ok(traces.size > 40, `${traces.size} reconciles`);
  for (const path of traces) assert.equal((await page.request.get(origin + path)).status(), 200, path);
  await close(page);
});

await check("rows that come while somebody looks", async () => {
  const page = await open("/?kind=Hanger");
  await page.route("**/rows?**", async (route) => {
    const response = await route.fetch();
    const html = (await response.text()).replace("</tbody>", "<tr><th scope=row>a newcomer</th></tr></tbody>");
    await route.fulfill({ response, body: html });
  });
  await page.waitForSelector("text=a newcomer");
  await page.unroute("**/rows?**");
  await page.route("**/rows?**", (route) => route.fulfill({ status: 502, body: "" }));
  await page.waitForSelector(".live.off:has-text('not live: the store does not answer')");
  // Chromium tells of each answer that is none.
  page.complaints = page.complaints.filter((complaint) => !complaint.includes("502"));
  await page.unroute("**/rows?**");
  await page.waitForSelector(".live:not(.off)");
  await close(page);
});

// Every kind of page, for axe and for the eye.
const first = await open(dropping);
const trace = await first.locator(deleting).getAttribute("href");
const key = await (async () => {
  await first.click(deleting);
  return first.locator(".facts a[href^='/open?key=']").getAttribute("href");
})();
await close(first);
const pages = {
  list: "/",
  reconcile: trace,
  network: "/trace/Network%2Fprod-net",
  failed: "/trace/Fatal%2Ffatal-bad",
  changes: `${trace}/changes`,
  step: `${trace}/step/2`,
  previous: `${trace}/step/1?view=previous`,
  story: `${trace}/resource?name=bucket-b`,
  history: "/xr/BucketSet.stores.example.org/default/assets",
  open: key.replace(/pointer=$/, "pointer=/steps/1/request"),
};

for (const [width, viewport] of Object.entries({ desk: DESK, phone: PHONE })) {
  for (const colorScheme of ["light", "dark"]) {
    for (const withScript of [true, false]) {
      await check(`axe at a ${width}, ${colorScheme}, ${withScript ? "with" : "without"} the page's script`, async () => {
        const wrong = [];
        for (const [name, path] of Object.entries(pages)) {
          const page = await open(path, { viewport, colorScheme, withScript });
          const overflow = await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);
          if (overflow > 0) wrong.push(`${path}: ${overflow} pixels too wide`);
          await page.evaluate(axe);
          const { violations } = await page.evaluate(() => axe.run({ resultTypes: ["violations"] }));
          wrong.push(...violations.map(({ id, impact, nodes }) => `${path}: ${impact} ${id}: ${nodes[0].html}`));
          if (withScript) await shoot(page, `${name}-${width}-${colorScheme}`, { fullPage: true });
          await close(page);
        }
        assert.deepEqual(wrong, []);
      });
    }
  }
}

await browser.close();
told.forEach((what) => console.log(`e2e/viewer: ${what}`));
