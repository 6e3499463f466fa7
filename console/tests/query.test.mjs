// The query page: statements of SQL++, their rows, plans, errors and files, completion, and statements of
// earlier.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { checkAccess, enter, logIn, screenshot, startBrowser, startServer, stopBrowser, visit } from "./harness.mjs";

const ROOT = ["root", "secret1"];
const READER = ["reader", "secret1"];
/** More than the statements that a server runs at once. */
const CANCELLED = 8;
const DIGITS = "1234567890123456789";

let server;

const sql = async (statement) => {
  const answer = await server.request("POST", "/query/service", new URLSearchParams({ statement }), ROOT);
  assert.equal(answer.status, 200, answer.text);
  return answer.json().results;
};

before(async () => {
  const users = { root: ["admin"], reader: ["read-only:default"] };
  [server] = await Promise.all([startServer({ users }), startBrowser()]);
  const scopes = "/pools/default/buckets/default/scopes";
  for (const [path, name] of [[scopes, "eu"], [`${scopes}/eu/collections`, "orders"]]) {
    assert.equal((await server.request("POST", path, new URLSearchParams({ name }), ROOT)).status, 200);
  }
  const docs = "/pools/default/buckets/default/docs";
  const values = ['{"name": "Ann", "city": "Rome, IT"}', `{\n  "name": "Bo \\"B\\"", "total": ${DIGITS}\n}`];
  for (const [at, value] of values.entries()) {
    assert.equal((await server.request("PUT", `${docs}/customer-${at + 1}`, value, ROOT)).status, 200);
  }
  await sql('INSERT INTO default.eu.orders VALUES ("o1", {"sku": "pen", "amount": 3})');
});

after(async () => {
  await stopBrowser();
  await server?.stop();
});

async function openQuery(user = ROOT, options = {}) {
  const page = await enter(server, user, options);
  await visit(page, "#/query", "Query");
  const statement = page.getByRole("textbox", { name: "SQL++ statement" });
  const click = (name) => page.getByRole("button", { name, exact: true }).click();
  const run = async (text, wait = / rows? in /) => {
    await statement.fill(text);
    // The status of an earlier run may read the same.
    const answer = page.waitForResponse((response) => response.url().endsWith("/query/service"));
    await statement.press("Control+Enter");
    await answer;
    await page.getByRole("status").filter({ hasText: wait }).waitFor();
  };
  const rowCells = () => page.locator("tbody td").allTextContents();
  return { page, statement, click, run, rowCells };
}

test("the example shows documents as a table and as JSON", async () => {
  const { page, click, rowCells } = await openQuery();
  await click("Run");
  await page.getByText(/^2 rows in .* of execution\)\.$/).waitFor();
  const names = await page.locator("thead th").allTextContents();
  const cells = await rowCells();
  // Scans have no order.
  const rows = [cells.slice(0, 4), cells.slice(4)].map((row) => Object.fromEntries(row.map((cell, at) => [names[at], cell])));
  assert.deepEqual(rows.sort((left, right) => (left.id < right.id ? -1 : 1)), [
    { id: "customer-1", name: "Ann", city: "Rome, IT", total: "" },
    { id: "customer-2", name: 'Bo "B"', city: "", total: DIGITS },
  ]);
  await checkAccess(page, "query");
  await screenshot(page, "query");
  await click("JSON");
  const json = await page.getByRole("region", { name: "Rows as JSON" }).innerText();
  assert.deepEqual(JSON.parse(`[${json}]`).map(({ name }) => name).sort(), ["Ann", 'Bo "B"']);
  assert.ok(json.includes(`"total": ${DIGITS}`), "no digit is lost");
  await checkAccess(page, "rows as JSON");
  await page.finish();
});

test("columns follow the statement", async () => {
  const { page, run, rowCells } = await openQuery();
  await run("SELECT 1 AS two, 'a' AS one, NULL AS three, MISSING AS four");
  assert.deepEqual(await page.locator("thead th").allTextContents(), ["two", "one", "three", "four"]);
  assert.deepEqual(await rowCells(), ["1", "a", "null", ""]);
  await run("SELECT RAW [1, 2]");
  assert.deepEqual(await rowCells(), ["[1,2]"]);
  await page.finish();
});

test("errors name line and column, and lead there", async () => {
  const { page, run, statement, click } = await openQuery();
  await run("SELECT 1\nFROM default WHERE ) 2", /Failed/);
  const alert = page.getByRole("alert");
  assert.match(await alert.innerText(), /^3000 .*line 2, column 20/s);
  await checkAccess(page, "an error");
  await click("Go to line 2, column 20");
  assert.equal(await statement.evaluate((area) => area.value.slice(area.selectionStart, area.selectionEnd)), ")");
  await click("Explain");
  await alert.getByText("line 2, column 20").first().waitFor();
  await run("SELECT * FROM nowhere", /Failed/);
  assert.match(await alert.innerText(), /^12003 /);
  await page.finish();
});

test("read only refuses a change, and a change is counted", async () => {
  const { page, run, rowCells } = await openQuery();
  const box = page.getByRole("checkbox", { name: "Read only" });
  await box.check();
  const update = 'UPDATE default.eu.orders SET paid = TRUE RETURNING paid';
  await run(update, /Failed/);
  assert.deepEqual(await sql("SELECT RAW paid FROM default.eu.orders"), [null]);
  await box.uncheck();
  await run(update, /1 row in .* 1 changed\./);
  assert.deepEqual(await rowCells(), ["true"]);
  assert.deepEqual(await sql("SELECT RAW paid FROM default.eu.orders"), [true]);
  await page.finish();
});

test("the query context names the scope", async () => {
  const { page, run, rowCells } = await openQuery();
  await page.getByRole("combobox", { name: "Query context" }).selectOption("default.eu");
  await run("SELECT sku FROM orders");
  assert.deepEqual(await rowCells(), ["pen"]);
  await page.finish();
});

test("words, keyspaces and fields are completed", async () => {
  const { page, statement } = await openQuery();
  const list = page.getByRole("listbox", { name: "Completion" });
  const type = (text) => statement.pressSequentially(text);
  await statement.fill("");
  await type("sel");
  await list.getByRole("option", { name: "select keyword" }).waitFor();
  await statement.press("Tab");
  assert.equal(await statement.inputValue(), "select");
  await type(" array_len");
  await statement.press("ArrowDown");
  await checkAccess(page, "completion");
  await screenshot(page, "completion");
  await statement.press("Enter");
  assert.equal(await statement.inputValue(), "select array_length(");
  await statement.press("Escape");
  await type("x) from ");
  await list.getByRole("option", { name: "default.eu.orders keyspace" }).waitFor();
  const answers = [];
  await page.route("**/query/service", (route) => answers.push(() => route.continue()));
  await list.getByRole("option", { name: "default.eu.orders keyspace" }).click();
  assert.equal(await statement.inputValue(), "select array_length(x) from default.eu.orders");
  await type(" o where o.am");
  assert.equal(await list.count(), 0, "no field is known yet");
  assert.ok(answers.length > 0);
  answers.forEach((answer) => answer());
  await page.unroute("**/query/service");
  await list.getByRole("option", { name: "o.amount field" }).waitFor();
  await statement.press("Tab");
  assert.ok((await statement.inputValue()).endsWith("where o.amount"));
  await type(" = 'sel");
  assert.equal(await list.count(), 0, "a text is not completed");
  const shown = await page.locator(".colours").innerText();
  assert.equal(shown.trim(), await statement.inputValue(), "the colours show the statement");
  assert.equal(await page.locator(".colours .sql-keyword").first().innerText(), "select");
  assert.equal(await page.locator(".colours .sql-function").innerText(), "array_length");
  await page.finish();
});

test("a plan is shown by operators", async () => {
  const { page, statement, click } = await openQuery();
  await statement.fill("SELECT name FROM default WHERE META().id = 'customer-1'");
  await click("Explain");
  const plan = page.getByRole("list", { name: "Plan" });
  await plan.getByText("KeyScan").waitFor();
  await checkAccess(page, "a plan");
  await screenshot(page, "plan");
  await click("JSON");
  await page.getByText('"#operator"').first().waitFor();
  await page.finish();
});

test("rows are exported as JSON and CSV", async () => {
  const { page, run, click } = await openQuery();
  await run("SELECT name, city, total FROM default ORDER BY name");
  const file = async (name) => {
    const [download] = await Promise.all([page.waitForEvent("download"), click(name)]);
    return [download.suggestedFilename(), readFileSync(await download.path(), "utf8")];
  };
  const [csvName, csv] = await file("Export CSV");
  assert.equal(csvName, "rows.csv");
  assert.equal(csv, `name,city,total\r\nAnn,"Rome, IT",\r\n"Bo ""B""",,${DIGITS}\r\n`);
  const [jsonName, json] = await file("Export JSON");
  assert.equal(jsonName, "rows.json");
  assert.deepEqual(JSON.parse(json).map(({ name }) => name), ["Ann", 'Bo "B"']);
  assert.ok(json.includes(DIGITS));
  await page.finish();
});

test("many rows are cut, and a cancelled statement ends", async () => {
  const { page, run, statement, click } = await openQuery();
  await run("SELECT n FROM ARRAY_RANGE(0, 1000000) AS n", /The first 5,000 rows\./);
  await click("Next rows");
  await page.getByText("201 – 400").waitFor();
  // Each would hold one of the server's places for over a minute.
  for (let turn = 0; turn < CANCELLED; turn++) {
    await statement.fill(`SELECT COUNT(*) + ${turn} FROM ARRAY_RANGE(0, 100000) AS a, ARRAY_RANGE(0, 100000) AS b`);
    await click("Run");
    await page.getByText("Running, 0 rows so far…").waitFor();
    await click("Cancel");
    await page.getByText("Cancelled after 0 rows.").waitFor();
  }
  await run("SELECT 1");
  await page.finish();
});

test("statements of earlier are found again", async () => {
  const { page, run, statement, click } = await openQuery();
  await run("SELECT 'first'");
  await run("SELECT 'second'");
  await click("History");
  const dialog = page.getByRole("dialog");
  assert.deepEqual(await dialog.locator("pre").allTextContents(), ["SELECT 'second'", "SELECT 'first'"]);
  await checkAccess(page, "history");
  await dialog.getByRole("button", { name: /^Open/ }).last().click();
  assert.equal(await statement.inputValue(), "SELECT 'first'");
  await click("Saved statements");
  await dialog.getByRole("textbox", { name: "Name" }).fill("one");
  await dialog.getByRole("button", { name: "Save this statement" }).click();
  await dialog.getByRole("button", { name: "Delete one" }).waitFor();
  await checkAccess(page, "saved statements");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Log out" }).click();
  await logIn(page, ROOT);
  await page.getByRole("link", { name: "Query" }).click();
  await page.getByRole("heading", { level: 1, name: "Query" }).waitFor();
  assert.ok((await statement.inputValue()) !== "SELECT 'first'", "a login begins anew");
  await click("History");
  await dialog.getByText("No statement has run yet.").waitFor();
  await page.keyboard.press("Escape");
  await click("Saved statements");
  await dialog.getByRole("button", { name: "Open one" }).click();
  assert.equal(await statement.inputValue(), "SELECT 'first'");
  await page.finish();
});

test("a dialog shows indexes with their state, size and progress", async () => {
  await sql("CREATE INDEX by_city ON default(city) WHERE name IS NOT MISSING");
  await sql("CREATE INDEX later ON default.eu.orders(sku) WITH {'defer_build': true}");
  const { page, click, run } = await openQuery();
  await click("Indexes");
  const dialog = page.getByRole("dialog", { name: "Indexes" });
  const rowOf = (name) => dialog.getByRole("row").filter({ has: page.getByRole("rowheader", { name, exact: true }) });
  const cells = (name) => rowOf(name).getByRole("cell").allInnerTexts();
  await rowOf("by_city").waitFor();
  const [path, keys, state, entries, memory, progress] = await cells("by_city");
  assert.deepEqual([path, state, progress], ["default", "online", "100 %"]);
  assert.match(keys, /city.* WHERE .*name/);
  assert.equal(entries, "1");
  assert.match(memory, /^[1-9].*B$/);
  const [laterPath, , laterState, none] = await cells("later");
  assert.deepEqual([laterPath, laterState, none], ["default.eu.orders", "deferred", ""]);
  await checkAccess(page, "indexes");
  await screenshot(page, "indexes");
  await sql("DROP INDEX default.eu.orders.later");
  await rowOf("later").waitFor({ state: "detached" });
  await page.keyboard.press("Escape");
  await run("DROP INDEX default.by_city", / in /);
  await click("Indexes");
  await dialog.getByText(/^There is no index/).waitFor();
  await page.finish();
});

test("a user who may only read gets the error of a change", async () => {
  const { page, run, rowCells } = await openQuery(READER);
  await run("SELECT name FROM default WHERE META().id = 'customer-1'");
  assert.deepEqual(await rowCells(), ["Ann"]);
  await run("DELETE FROM default", /Failed/);
  assert.match(await page.getByRole("alert").innerText(), /^13014 /);
  await page.finish();
});

test("the page fits a phone", async () => {
  const { page, run } = await openQuery(ROOT, { viewport: { width: 375, height: 700 } });
  await run("SELECT name FROM default");
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 375, `${width} pixels`);
  await page.finish();
});
