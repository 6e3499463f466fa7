// The layout with the longest names and keys, on a phone and on a desktop.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  ADMIN,
  checkAccess,
  enter,
  readMessage,
  screenshot,
  startBrowser,
  startServer,
  stopBrowser,
  visit,
  writeDocuments,
} from "./harness.mjs";

const WIDTHS = { phone: { width: 360, height: 740 }, desktop: { width: 1280, height: 860 } };

const BUCKET = "b".repeat(100);
const SCOPE = "s".repeat(251);
const COLLECTION = "c".repeat(251);
const KEY = `order:${"k".repeat(240)}`;
const BYTES_KEY = Buffer.from([0x6f, 0xff, 0x0a, 0x7a]).toString("base64url");

const idOf = (key) => Buffer.from(key).toString("base64url");

let server;

before(async () => {
  [server] = await Promise.all([startServer(), startBrowser()]);
  const post = async (path, fields) => {
    const { status, text } = await server.request("POST", path, new URLSearchParams(fields));
    assert.ok(status < 300, text);
  };
  const scopes = "/pools/default/buckets/default/scopes";
  await post("/pools/default/buckets", { name: BUCKET, ramQuotaMB: 100, flushEnabled: 1 });
  await post(scopes, { name: SCOPE });
  await post(`${scopes}/${SCOPE}/collections`, { name: COLLECTION, maxTTL: 7200 });
  await writeDocuments(server.port, [[KEY, JSON.stringify({ long: "v".repeat(400) })]]);
  const bytes = `/pools/default/buckets/default/docs/${BYTES_KEY}?encoding=base64url`;
  assert.equal((await server.request("PUT", bytes, "1")).status, 200);
});

after(async () => {
  await stopBrowser();
  await server?.stop();
});

const PAGES = [
  ["#/overview", "Overview", "Figures of each bucket"],
  ["#/buckets", "Buckets", "Buckets"],
  ["#/buckets/default", "Collections of default", `Collections of ${SCOPE}`],
  ["#/documents/default/_default/_default", "Documents", "Documents"],
  [`#/documents/default/${SCOPE}/${COLLECTION}`, "Documents"],
  [`#/documents/default/_default/_default?open=${idOf(KEY)}`, KEY],
  ["#/nodes", "Nodes and vbuckets", "vbuckets"],
];

for (const [device, viewport] of Object.entries(WIDTHS)) {
  test(`no name widens a page on a ${device}`, async () => {
    const page = await enter(server, ADMIN, { viewport });
    const overflow = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    for (const [address, heading, table] of PAGES) {
      await visit(page, address, heading);
      if (table) await page.getByRole("region", { name: table }).waitFor();
      assert.ok((await overflow()) <= 0, `${address} on a ${device}`);
    }
    await visit(page, "#/buckets/default", "Collections of default");
    await page.getByRole("button", { name: `Drop ${COLLECTION}` }).click();
    const dialog = page.getByRole("dialog");
    assert.ok(await dialog.evaluate((box) => box.scrollWidth <= box.clientWidth), "the dialog");
    await page.finish();
  });
}

test("the lines of a row end together", async () => {
  const page = await enter(server);
  for (const [address, heading, table] of PAGES.slice(1, 3)) {
    await visit(page, address, heading);
    const rows = page.getByRole("region", { name: table }).locator("tbody tr");
    await rows.first().waitFor();
    const ends = await rows.evaluateAll((rows) =>
      rows.map((row) => new Set([...row.cells].map((cell) => Math.round(cell.getBoundingClientRect().bottom))).size),
    );
    assert.deepEqual(ends, ends.map(() => 1), address);
  }
  await page.finish();
});

test("a key of 246 bytes is a few lines on a phone", async () => {
  const page = await enter(server, ADMIN, { viewport: WIDTHS.phone });
  await visit(page, "#/documents/default", "Documents");
  const key = await page.getByRole("link", { name: KEY }).boundingBox();
  assert.ok(key.width > 200 && key.height < 80, JSON.stringify(key));
  const content = await page.locator("td.preview").last().boundingBox();
  assert.ok(content.x + content.width <= WIDTHS.phone.width, "the content is on the screen");
  assert.equal(await page.getByRole("rowheader").count(), 2, "a row is one for screen readers, too");
  await checkAccess(page, "documents on a phone");
  await screenshot(page, "documents-phone");
  await page.finish();
});

test("a key that is not UTF-8 is shown with escapes", async () => {
  const page = await enter(server);
  await visit(page, "#/documents/default", "Documents");
  await page.getByRole("link", { name: "o\\xff\\x0az" }).click();
  await page.getByRole("heading", { level: 1, name: "o\\xff\\x0az not UTF-8" }).waitFor();
  await page.finish();
});

test("a name that is a word is told apart from the question", async () => {
  const form = new URLSearchParams({ name: "again" });
  await server.request("POST", "/pools/default/buckets/default/scopes", form);
  const page = await enter(server);
  await visit(page, "#/buckets/default", "Collections of default");
  await page.getByRole("button", { name: "Drop scope again" }).click();
  await page.getByLabel("To confirm, type the name “again”").fill("again");
  await page.getByRole("button", { name: "Drop the scope" }).click();
  await readMessage(page, "Dropped the scope again.");
  await page.finish();
});

test("ticks of bytes are at powers of two", async () => {
  const page = await enter(server);
  await page.addInitScript(() => {
    window.drawn = [];
    const { fillText } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
      window.drawn.push(text);
      return fillText.call(this, text, ...rest);
    };
  });
  const figures = { memory: { used_bytes: 190 * 2 ** 20, quota_bytes: 256 * 2 ** 20 } };
  await page.route("**/node/figures*", async (route) => {
    const response = await route.fetch();
    const json = await response.json();
    json.buckets = json.buckets.map((bucket) => ({ ...bucket, memory: { ...bucket.memory, ...figures.memory } }));
    delete json.history;
    await route.fulfill({ response, json });
  });
  await visit(page, "#/buckets", "Buckets");
  await page.waitForFunction(async () => (await navigator.serviceWorker.getRegistration("/console/"))?.active);
  await page.reload();
  await visit(page, "#/overview/default", "Overview");
  await page.waitForFunction(() => window.drawn.includes("128 MiB"));
  const ticks = (await page.evaluate(() => window.drawn)).filter((text) => /[KMG]iB$/.test(text));
  assert.deepEqual(ticks.filter((text) => text.includes(".")), []);
  await page.finish();
});
