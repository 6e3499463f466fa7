// The console in a real browser, against a server with its default settings and the user of development
// mode, and against one with users of few rights.

import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { after, before, test } from "node:test";
import {
  ADMIN,
  checkAccess,
  enter,
  logIn,
  openPage,
  readMessage,
  screenshot,
  startBrowser,
  startServer,
  stopBrowser,
  visit,
  writeDocuments,
} from "./harness.mjs";

const DOCUMENTS = 100_000;
const keyOf = (number) => `order-${String(number).padStart(6, "0")}`;
const DOCS = "/pools/default/buckets/default/docs";

let server;

before(async () => {
  [server] = await Promise.all([startServer({ flags: ["--slow-read-ms", "1", "--slow-other-ms", "1"] }), startBrowser()]);
  const documents = function* () {
    for (let number = 0; number < DOCUMENTS; number++) {
      yield [keyOf(number), JSON.stringify({ number, customer: `c-${number % 997}`, total: (number * 37) % 10_000 })];
    }
  };
  await writeDocuments(server.port, documents());
});

after(async () => {
  await stopBrowser();
  await server?.stop();
});

test("a wrong password is refused in the page, and the right one enters", async () => {
  const page = await openPage(server);
  await page.getByText("development mode").waitFor();
  await logIn(page, ["Administrator", "wrong"]);
  await page.getByRole("alert").getByText("The name or the password is wrong.").waitFor();
  await checkAccess(page, "login");
  await screenshot(page, "login");
  await logIn(page);
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Password").waitFor();
  assert.equal(await page.getByLabel("Password").inputValue(), "");
  await page.finish();
});

test("the overview shows what the server does, in both colours", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const page = await enter(server, ADMIN, { colorScheme });
    await page.getByText("100,000").first().waitFor();
    await page.locator("canvas").nth(6).waitFor();
    assert.equal(await page.getByText("Lag of change streams").count(), 1);
    await checkAccess(page, `overview, ${colorScheme}`);
    await screenshot(page, `overview-${colorScheme}`);
    await page.finish();
  }
});

test("100,000 keys are browsed page by page and found by prefix", async () => {
  const page = await enter(server);
  await visit(page, "#/documents/default", "Documents");
  await page.getByRole("link", { name: keyOf(0), exact: true }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 50);
  await checkAccess(page, "documents");
  await screenshot(page, "documents");
  await page.getByRole("button", { name: "Next page" }).click();
  await page.getByRole("link", { name: keyOf(50), exact: true }).waitFor();
  await page.getByRole("button", { name: "Previous page" }).click();
  await page.getByRole("link", { name: keyOf(0), exact: true }).waitFor();
  await page.locator("main").press("/");
  await page.keyboard.type("order-09999");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: keyOf(99_999), exact: true }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 10);
  assert.ok(await page.getByRole("button", { name: "Next page" }).isDisabled());
  await page.getByRole("searchbox").fill(keyOf(77_777));
  await page.getByRole("button", { name: "Open this key" }).click();
  await page.getByRole("heading", { level: 1, name: keyOf(77_777) }).waitFor();
  await page.finish();
});

test("a document is created, edited with its version, seen in conflict, and deleted", async () => {
  const page = await enter(server);
  await visit(page, "#/documents/default", "Documents");
  await page.getByRole("button", { name: "New document" }).click();
  await page.getByLabel("Key", { exact: true }).fill("a/b ü");
  await page.getByLabel("Value", { exact: true }).fill('{"big": 12345678901234567890, "list": []}');
  await checkAccess(page, "new document");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "a/b ü" }).waitFor();
  const path = `${DOCS}/${encodeURIComponent("a/b ü")}`;
  const stored = (await server.request("GET", path)).json();
  assert.equal(stored.text, '{"big":12345678901234567890,"list":[]}', "no digit is lost");

  const value = page.getByRole("textbox", { name: "Value" });
  await value.fill('{"mine": 1}');
  assert.equal((await server.request("PUT", path, '{"theirs": 2}')).status, 200);
  await value.press("Control+Enter");
  const conflict = page.getByRole("dialog", { name: "The document has changed" });
  await conflict.getByText('"theirs": 2').waitFor();
  await checkAccess(page, "conflict");
  await screenshot(page, "conflict");
  assert.equal((await server.request("GET", path)).json().text, '{"theirs": 2}', "nothing was overwritten");
  await conflict.getByRole("button", { name: "Overwrite it with mine" }).click();
  await readMessage(page, "Saved a/b ü.");
  assert.equal((await server.request("GET", path)).json().text, '{"mine":1}');

  await page.getByRole("button", { name: "Refresh" }).click();
  await page.getByLabel("New expiry in seconds").fill("1000");
  await page.getByRole("button", { name: "Save" }).click();
  await readMessage(page, "Saved a/b ü.");
  assert.ok((await server.request("GET", path)).json().expiry > 0);
  await checkAccess(page, "document");
  await screenshot(page, "document");

  await page.getByRole("button", { name: "Delete", exact: true }).click();
  assert.equal((await server.request("GET", path)).status, 200, "the console asks first");
  await page.getByRole("button", { name: "Delete the document" }).click();
  await page.getByRole("heading", { level: 1, name: "Documents" }).waitFor();
  assert.equal((await server.request("GET", path)).status, 404);
  await page.finish();
});

test("an unsaved text outlives other pages, and an older version never overwrites a newer one", async () => {
  await server.request("PUT", `${DOCS}/draft`, '{"n":1}');
  const page = await enter(server);
  const address = `#/documents/default?open=${Buffer.from("draft").toString("base64url")}`;
  await visit(page, address, "draft");
  const value = page.getByRole("textbox", { name: "Value" });
  await value.fill('{"mine":1}');
  await visit(page, "#/buckets", "Buckets");
  await visit(page, address, "draft");
  assert.equal(await value.inputValue(), '{"mine":1}');
  assert.equal(await page.getByText("made from an older version").count(), 0);
  await server.request("PUT", `${DOCS}/draft`, '{"theirs":1}');
  await page.getByRole("button", { name: "Refresh" }).click();
  await page.getByText("made from an older version").waitFor();
  assert.equal(await value.inputValue(), '{"mine":1}');
  await page.getByRole("button", { name: "Save" }).click();
  const conflict = page.getByRole("dialog", { name: "The document has changed" });
  await conflict.getByText('"theirs": 1').waitFor();
  await conflict.getByRole("button", { name: "Take the server's version" }).click();
  await page.getByText("made from an older version").waitFor({ state: "detached" });
  assert.match(await value.inputValue(), /theirs/);
  await server.request("DELETE", `${DOCS}/draft`);
  await page.finish();
});

test("values of 20 MiB and values that are no text are files, and long texts can be edited", async () => {
  const long = JSON.stringify("y".repeat(400_000));
  await writeDocuments(server.port, [
    ["huge", JSON.stringify("x".repeat(20 * 1024 * 1024 - 16))],
    ["bytes", Buffer.from([0xff, 0x00, 0xfe])],
    ["long", long],
  ]);
  const page = await enter(server);
  const show = (key) => visit(page, `#/documents/default?open=${Buffer.from(key).toString("base64url")}`, key);
  await show("huge");
  await page.getByText("20.0 MiB; its beginning is shown").waitFor();
  assert.equal(await page.getByRole("button", { name: "Save" }).count(), 0);
  const waiting = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download" }).click();
  const download = await waiting;
  assert.equal(download.suggestedFilename(), "huge.json");
  assert.equal(statSync(await download.path()).size, 20 * 1024 * 1024 - 14);
  await checkAccess(page, "a long document");
  await screenshot(page, "long");

  await show("bytes");
  await page.getByText("/wD+").waitFor();
  const file = { name: "new.bin", mimeType: "application/octet-stream", buffer: Buffer.alloc(3 * 1024 * 1024, 0x80) };
  await page.locator("input[type=file]").setInputFiles(file);
  await page.getByText("The file new.bin (3 MiB) replaces the value of bytes (3 B)").waitFor();
  await checkAccess(page, "replace a value");
  await page.getByRole("button", { name: "Replace the value" }).click();
  await readMessage(page, "Replaced the value of bytes.");
  assert.equal((await server.request("GET", `${DOCS}/bytes`)).json().bytes, file.buffer.length);

  await show("long");
  await page.getByRole("textbox", { name: "Value" }).fill(long.replace("yy", "zz"));
  await page.getByRole("button", { name: "Save" }).click();
  await readMessage(page, "Saved long.");
  assert.ok((await server.request("GET", `${DOCS}/long`)).json().text.startsWith('"zzy'));
  for (const key of ["huge", "bytes", "long"]) await server.request("DELETE", `${DOCS}/${key}`);
  await page.finish();
});

test("buckets and collections are made, changed and dropped by typing their name", async () => {
  const page = await enter(server);
  await visit(page, "#/buckets", "Buckets");
  await page.getByRole("button", { name: "New bucket" }).click();
  await page.getByLabel("Name").fill("default");
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByRole("alert").getByText("already exists").waitFor();
  await page.getByLabel("Name").fill("shop");
  await page.getByLabel("Memory quota in MiB").fill("100");
  await page.getByLabel("Memory tier").selectOption("dense");
  await page.getByLabel("Replicas").selectOption("0");
  await checkAccess(page, "new bucket");
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByRole("link", { name: "shop", exact: true }).waitFor();
  const tier = async () => (await server.request("GET", "/pools/default/buckets/shop")).json().memoryTier;
  assert.equal(await tier(), "dense");
  await page.getByRole("button", { name: "Change shop" }).click();
  await page.getByLabel("Memory quota in MiB").fill("128");
  await page.getByLabel("Memory tier").selectOption("off");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("of 128 MiB").waitFor();
  assert.equal(await tier(), "off");
  await checkAccess(page, "buckets");
  await screenshot(page, "buckets");

  await page.getByRole("link", { name: "shop", exact: true }).click();
  await page.getByRole("button", { name: "New scope" }).click();
  await page.getByLabel("Name").fill("eu");
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByRole("button", { name: "New collection in eu" }).click();
  await page.getByLabel("Name").fill("orders");
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByRole("link", { name: "orders" }).waitFor();
  await checkAccess(page, "collections");
  await page.getByRole("button", { name: "Drop orders" }).click();
  await page.getByLabel("To confirm, type the name “orders”").fill("orders");
  await page.getByRole("button", { name: "Drop the collection" }).click();
  await page.getByText("This scope has no collections.").waitFor();

  await visit(page, "#/buckets", "Buckets");
  await page.getByRole("button", { name: "Drop shop" }).click();
  const drop = page.getByRole("button", { name: "Drop the bucket" });
  await page.getByLabel("To confirm, type the name “shop”").fill("sho");
  assert.ok(await drop.isDisabled());
  await page.getByLabel("To confirm, type the name “shop”").fill("shop");
  await drop.click();
  await page.getByRole("link", { name: "shop", exact: true }).waitFor({ state: "detached" });
  await page.finish();
});

test("changes appear as they happen, and a pause holds them", async () => {
  const page = await enter(server);
  await visit(page, "#/changes", "Live changes");
  await page.getByText("Live, 0 changes").waitFor();
  await server.request("PUT", `${DOCS}/live-1`, '{"seen":true}');
  await page.getByRole("link", { name: "live-1" }).waitFor();
  await page.getByText('{"seen":true}').waitFor();
  await server.request("DELETE", `${DOCS}/live-1`);
  await page.locator(".tag.deletion").waitFor();
  await checkAccess(page, "changes");
  await screenshot(page, "changes");
  await page.getByRole("button", { name: "Pause" }).click();
  await server.request("PUT", `${DOCS}/live-2`, "1");
  await page.getByText("Paused, 3 changes").waitFor();
  assert.equal(await page.getByRole("link", { name: "live-2" }).count(), 0);
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByLabel("Keys that contain").fill("other");
  await server.request("PUT", `${DOCS}/live-3`, "1");
  await server.request("PUT", `${DOCS}/other-1`, "1");
  await page.getByRole("link", { name: "other-1" }).waitFor();
  assert.equal(await page.getByRole("link", { name: "live-3" }).count(), 0, "the filter leaves it out");
  for (const key of ["live-2", "live-3", "other-1"]) await server.request("DELETE", `${DOCS}/${key}`);
  await page.finish();
});

test("nodes, vbuckets and slow operations", async () => {
  const page = await enter(server);
  await visit(page, "#/nodes", "Nodes and vbuckets");
  await page.getByText("64 vbuckets, 64 active; 1 node(s).").waitFor();
  assert.equal(await page.locator(".grid span").count(), 64);
  await checkAccess(page, "nodes");
  await screenshot(page, "nodes");
  await visit(page, "#/slow", "Slow operations");
  await page.getByText("The last 256 operations").waitFor();
  await checkAccess(page, "slow operations");
  await screenshot(page, "slow");
  await page.finish();
});

test("users are added, changed and removed, and development mode ends with the first", async () => {
  const other = await startServer();
  try {
    const page = await enter(other);
    await visit(page, "#/users", "Users and roles");
    await page.getByText("give the first user the role").waitFor();
    await page.getByRole("button", { name: "New user" }).click();
    await page.getByLabel("User name").fill("root");
    await page.getByLabel("Password", { exact: true }).fill("secret1");
    assert.equal(await page.getByLabel("Role", { exact: true }).inputValue(), "admin", "the first user is one");
    await checkAccess(page, "new user");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("The server no longer accepts this login.").waitFor();
    await logIn(page, ["root", "secret1"]);
    await visit(page, "#/users", "Users and roles");
    await page.getByRole("button", { name: "New user" }).click();
    await page.getByLabel("User name").fill("ann");
    await page.getByLabel("Full name").fill("Ann Example");
    await page.getByLabel("Password", { exact: true }).fill("secret1");
    await page.getByLabel("Role", { exact: true }).selectOption("read-write");
    await page.getByLabel("Bucket", { exact: true }).selectOption("default");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("read-write[default]").waitFor();
    await checkAccess(page, "users");
    await screenshot(page, "users");
    assert.equal((await other.request("PUT", `${DOCS}/a`, "1", ["ann", "secret1"])).status, 200);
    await page.getByRole("button", { name: "Password of ann" }).click();
    await page.getByLabel("New password", { exact: true }).fill("secret2");
    await page.getByLabel("New password again").fill("secret");
    await page.getByText("The two differ").waitFor();
    assert.ok(await page.getByRole("button", { name: "Save" }).isDisabled());
    await page.getByLabel("New password again").fill("secret2");
    await page.getByRole("button", { name: "Save" }).click();
    await readMessage(page, "Changed the password of ann.");
    assert.equal((await other.request("GET", `${DOCS}/a`, undefined, ["ann", "secret1"])).status, 401);
    assert.equal((await other.request("GET", `${DOCS}/a`, undefined, ["ann", "secret2"])).status, 200);
    await page.getByRole("button", { name: "Remove ann" }).click();
    await page.getByLabel("To confirm, type the name “ann”").fill("ann");
    await page.getByRole("button", { name: "Remove the user" }).click();
    await page.getByRole("rowheader", { name: "ann" }).waitFor({ state: "detached" });
    assert.equal((await other.request("GET", `${DOCS}/a`, undefined, ["ann", "secret2"])).status, 401);
    await page.finish();
  } finally {
    await other.stop();
  }
});

test("no example comes between what is typed", async () => {
  const page = await enter(server);
  let answer;
  const answered = new Promise((resolve) => (answer = resolve));
  await page.route("**/pools/default/buckets", async (route) => {
    await answered;
    await route.continue();
  });
  await visit(page, "#/query", "Query");
  const statement = page.getByRole("textbox", { name: "SQL++ statement" });
  await statement.focus();
  const known = page.waitForResponse("**/pools/default/buckets");
  answer();
  await known;
  await page.keyboard.type("SELECT 1");
  assert.equal(await statement.inputValue(), "SELECT 1");
  await page.finish();
});

test("the keyboard reaches every page", async () => {
  const page = await enter(server);
  await page.locator("main").press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("g");
  await page.keyboard.press("2");
  await page.getByRole("heading", { level: 1, name: "Buckets" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.id), "main", "a reader starts at the page");
  await page.keyboard.press("Tab");
  assert.notEqual(await page.evaluate(() => document.activeElement?.tagName), "BODY");
  await page.finish();
});

test("a user who may only read is offered no change, and the server refuses one", async () => {
  const users = {
    root: ["admin"],
    reader: ["read-only:default"],
    narrow: ["read:default/_default/_default"],
    foreign: ["read-only:default/eu/orders"],
  };
  const other = await startServer({ users });
  try {
    await other.request("PUT", `${DOCS}/one`, '{"n":1}', ["root", "secret1"]);
    const page = await enter(other, ["reader", "secret1"]);
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    assert.equal(await page.getByRole("link", { name: "Slow operations" }).count(), 0);
    await visit(page, "#/buckets", "Buckets");
    await page.getByRole("link", { name: "default", exact: true }).waitFor();
    for (const name of ["New bucket", "Drop default", "Change default"]) {
      assert.equal(await page.getByRole("button", { name }).count(), 0, name);
    }
    await visit(page, "#/documents/default", "Documents");
    await page.getByRole("link", { name: "one" }).click();
    await page.getByText("Your user may read this document and not change it.").waitFor();
    assert.equal(await page.getByRole("button", { name: "Delete" }).count(), 0);
    await checkAccess(page, "document of a reader");
    assert.equal(await page.getByRole("button", { name: "Replace by a file" }).count(), 0);
    await page.getByRole("button", { name: "Password", exact: true }).click();
    await page.getByLabel("Current password").fill("wrong");
    await page.getByLabel("New password", { exact: true }).fill("secret2");
    await page.getByLabel("New password again").fill("secret2");
    await checkAccess(page, "password");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("alert").getByText("The current password is wrong.").waitFor();
    await page.getByLabel("Current password").fill("secret1");
    await page.getByRole("button", { name: "Save" }).click();
    await readMessage(page, "Changed the password of reader.");
    const refused = await other.request("PUT", `${DOCS}/one`, "2", ["reader", "secret2"]);
    assert.equal(refused.status, 403);
    await visit(page, "#/changes", "Live changes");
    await page.getByText("no right to follow the changes").waitFor();
    await page.finish();

    const little = await enter(other, ["narrow", "secret1"]);
    await little.getByText("no right to see the figures").waitFor();
    await visit(little, "#/documents/default", "Documents");
    await little.getByRole("alert").getByText("lacks the right range-scan").waitFor();
    await little.finish();

    const root = ["root", "secret1"];
    const scopes = "/pools/default/buckets/default/scopes";
    await other.request("POST", scopes, new URLSearchParams({ name: "eu" }), root);
    await other.request("POST", `${scopes}/eu/collections`, new URLSearchParams({ name: "orders" }), root);
    await other.request("PUT", `${scopes}/eu/collections/orders/docs/theirs`, "1", root);
    const foreign = await enter(other, ["foreign", "secret1"]);
    await visit(foreign, "#/documents", "Documents");
    await foreign.getByRole("link", { name: "theirs" }).waitFor();
    await foreign.finish();
  } finally {
    await other.stop();
  }
});

test("the page keeps to its policy", async () => {
  const page = await enter(server);
  const refused = await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.head.append(script);
    return window.ran === undefined;
  });
  assert.ok(refused || process.env.CONSOLE_DEV, "an inline script does not run");
  page.problems.length = 0;
  assert.deepEqual(await page.context().cookies(), []);
  await page.finish();
});
