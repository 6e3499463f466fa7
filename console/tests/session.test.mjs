// The login over a reload, addresses of no page, and what the overview shows: history, all buckets, and
// figures that are old.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  ADMIN,
  checkAccess,
  enter,
  logIn,
  openPage,
  screenshot,
  startBrowser,
  startServer,
  stopBrowser,
  visit,
  writeDocuments,
} from "./harness.mjs";

let server;

before(async () => {
  [server] = await Promise.all([startServer(), startBrowser()]);
  const form = new URLSearchParams({ name: "shop", ramQuotaMB: 100, bucketType: "ephemeral" });
  assert.equal((await server.request("POST", "/pools/default/buckets", form)).status, 202);
  await writeDocuments(server.port, [["one", "1"], ["two", "2"]]);
});

after(async () => {
  await stopBrowser();
  await server?.stop();
});

const SECRETS = [ADMIN[1], Buffer.from(ADMIN.join(":")).toString("base64")];

const loginForm = (page) => page.getByRole("button", { name: "Log in" });

/** The worker is there, so that the page can leave its login. */
const workerRuns = (page) =>
  page.waitForFunction(async () => (await navigator.serviceWorker.getRegistration("/console/"))?.active?.state === "activated");

test("a reload keeps the login and the page, and stores no secret", async () => {
  const page = await enter(server);
  await visit(page, "#/buckets", "Buckets");
  await workerRuns(page);
  // What the tab's storage has while no page is there.
  await page.evaluate(() =>
    addEventListener("pagehide", () => localStorage.setItem("seen", JSON.stringify({ ...sessionStorage }))),
  );
  for (let turn = 0; turn < 2; turn++) {
    await page.reload();
    await page.getByRole("heading", { level: 1, name: "Buckets" }).waitFor();
  }
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
  assert.match(kept, /oribi-console-tab/);
  for (const secret of SECRETS) assert.ok(!kept.includes(secret), kept);
  assert.deepEqual(await page.context().cookies(), []);
  await page.finish();
});

test("another tab does not get the login", async () => {
  const page = await enter(server);
  await workerRuns(page);
  const other = await page.context().newPage();
  await other.goto(`${server.origin}/console/`);
  await loginForm(other).waitFor();
  const answer = await other.evaluate(async () => {
    const { active } = await navigator.serviceWorker.getRegistration("/console/");
    const { port1, port2 } = new MessageChannel();
    const answered = new Promise((resolve) => (port1.onmessage = ({ data }) => resolve(data)));
    active.postMessage({ tab: "guessed" }, [port2]);
    return answered;
  });
  assert.equal(answer, null);
  await page.finish();
});

test("the worker gives a login once, and forgets it in time", async () => {
  const page = await enter(server);
  await workerRuns(page);
  const [worker] = page.context().serviceWorkers();
  const say = (message) =>
    page.evaluate(async (message) => {
      const { active } = await navigator.serviceWorker.getRegistration("/console/");
      const { port1, port2 } = new MessageChannel();
      const answered = new Promise((resolve) => (port1.onmessage = ({ data }) => resolve(data)));
      active.postMessage(message, [port2]);
      return message.credentials === undefined ? answered : undefined;
    }, message);
  await say({ tab: "a", credentials: "secret" });
  assert.equal(await say({ tab: "a" }), "secret");
  assert.equal(await say({ tab: "a" }), null);
  await worker.evaluate(() => {
    globalThis.setTimeout = (end, ms) => (globalThis.waited = ms) && queueMicrotask(end);
  });
  await say({ tab: "b", credentials: "secret" });
  assert.equal(await say({ tab: "b" }), null);
  assert.equal(await worker.evaluate(() => globalThis.waited), 30_000);
  await page.finish();
});

test("a slow worker still gives the login back", async () => {
  const page = await enter(server);
  await workerRuns(page);
  const [worker] = page.context().serviceWorkers();
  await worker.evaluate(() =>
    addEventListener("message", () => {
      const end = Date.now() + 2_000;
      while (Date.now() < end);
    }),
  );
  await page.reload();
  await page.getByRole("button", { name: "Log out" }).waitFor();
  await page.finish();
});

test("a login that was ended stays ended after a reload", async () => {
  const page = await enter(server);
  await workerRuns(page);
  await page.reload();
  await page.getByRole("button", { name: "Log out" }).click();
  await loginForm(page).waitFor();
  await page.reload();
  await loginForm(page).waitFor();
  await page.finish();
});

test("an address of no page says so", async () => {
  const page = await openPage(server);
  await page.goto(`${server.origin}/console/#/nonsense`);
  await logIn(page);
  await page.getByRole("heading", { level: 1, name: "No such page" }).waitFor();
  await page.getByText("no page “nonsense”").waitFor();
  await checkAccess(page, "no such page");
  await page.getByRole("link", { name: "Open the overview" }).click();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  await page.finish();
});

test("the overview opens with the history of the server", async () => {
  const page = await openPage(server);
  const asked = [];
  // One answer is all that the page gets.
  await page.route("**/node/figures*", (route) => {
    asked.push(new URL(route.request().url()).search);
    return asked.length === 1 ? route.continue() : undefined;
  });
  await logIn(page);
  await page.locator(".tile", { hasText: "Reads0/s" }).waitFor();
  assert.equal(asked[0], "?history=1");
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await page.finish();
});

test("the overview shows all buckets and each of them", async () => {
  const page = await enter(server);
  const documents = (count) => page.locator(".tile", { hasText: `Documents${count}0 dense, 0 evicted` }).waitFor();
  await documents(2);
  assert.equal(await page.getByLabel("Bucket", { exact: true }).inputValue(), "");
  assert.equal(await page.getByRole("table", { name: "Figures of each bucket" }).getByRole("rowheader").count(), 2);
  await checkAccess(page, "overview of all buckets");
  await screenshot(page, "overview-all");
  await page.getByRole("link", { name: "shop" }).click();
  await documents(0);
  assert.equal(await page.getByLabel("Bucket", { exact: true }).inputValue(), "shop");
  await page.getByLabel("Bucket", { exact: true }).selectOption("default");
  await documents(2);
  await page.finish();
});

test("figures of a server that is away are dimmed and dated", async () => {
  const page = await enter(server);
  await page.getByRole("table", { name: "Figures of each bucket" }).waitFor();
  assert.equal(await page.locator(".stale").count(), 0);
  await page.route("**/node/figures*", (route) => route.abort());
  const alert = page.getByRole("alert").getByText("The server does not answer.");
  await alert.getByText("These figures are of").waitFor();
  assert.ok(Number(await page.locator(".stale").evaluate((known) => getComputedStyle(known).opacity)) < 0.6);
  await screenshot(page, "overview-away");
  await page.unroute("**/node/figures*");
  await page.locator(".stale").waitFor({ state: "detached" });
  assert.equal(await alert.count(), 0);
  page.problems.length = 0;
  await page.finish();
});
