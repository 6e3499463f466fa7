// The format of a document: what the flags say follows what the value is, and the console asks before
// it stores a text over JSON.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { checkAccess, enter, readMessage, screenshot, startBrowser, startServer, stopBrowser, visit } from "./harness.mjs";

/** Flags as all client libraries write and read them. */
const JSON_FLAGS = 0x02000000;
const BYTES_FLAGS = 0x03000000;
const TEXT_FLAGS = 0x04000000;

const DOCS = "/pools/default/buckets/default/docs";

let server;

before(async () => {
  [server] = await Promise.all([startServer(), startBrowser()]);
});

after(async () => {
  await stopBrowser();
  await server?.stop();
});

const store = async (key, flags, value) =>
  assert.equal((await server.request("PUT", `${DOCS}/${key}?flags=${flags}`, value)).status, 200);

const stored = async (key) => {
  const { text, flags } = (await server.request("GET", `${DOCS}/${key}`)).json();
  return { text, flags };
};

const open = async (page, key) => {
  await visit(page, `#/documents/default?open=${Buffer.from(key).toString("base64url")}`, key);
  return page.getByRole("textbox", { name: "Value" });
};

const save = async (page, key) => {
  await page.getByRole("button", { name: "Save" }).click();
  await readMessage(page, `Saved ${key}.`);
};

const question = (page) => page.getByRole("dialog", { name: "This is not valid JSON" });

test("a broken text over JSON is stored only after a question", async () => {
  await store("broken", JSON_FLAGS, '{"n":1}');
  const page = await enter(server);
  const value = await open(page, "broken");
  await value.fill('{"n": 1,');
  await page.getByText("Not valid JSON:").waitFor();
  await value.press("Control+Enter");
  await question(page).getByText("fail to decode it").waitFor();
  await checkAccess(page, "not JSON");
  await screenshot(page, "not-json");
  await page.getByRole("button", { name: "Keep editing" }).click();
  assert.deepEqual(await stored("broken"), { text: '{"n":1}', flags: JSON_FLAGS });
  assert.equal(await value.inputValue(), '{"n": 1,');
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Store it as text" }).click();
  await readMessage(page, "Saved broken.");
  assert.deepEqual(await stored("broken"), { text: '{"n": 1,', flags: TEXT_FLAGS });
  await page.getByText(`${TEXT_FLAGS} (text)`).waitFor();
  await page.finish();
});

test("flags follow a text that becomes JSON", async () => {
  await store("becomes", TEXT_FLAGS, "hello");
  const page = await enter(server);
  const value = await open(page, "becomes");
  await value.fill('{ "n": 2 }');
  await save(page, "becomes");
  assert.deepEqual(await stored("becomes"), { text: '{ "n": 2 }', flags: TEXT_FLAGS }, "a text stays one");
  await page.getByLabel("Stored as").selectOption("json");
  await save(page, "becomes");
  assert.deepEqual(await stored("becomes"), { text: '{"n":2}', flags: JSON_FLAGS });
  await page.finish();
});

test("flags that name no format stay with the format", async () => {
  await store("cached", 5, '{"n":1}');
  const page = await enter(server);
  const value = await open(page, "cached");
  await value.fill('{"n": 2}');
  await save(page, "cached");
  assert.deepEqual(await stored("cached"), { text: '{"n":2}', flags: 5 });
  await page.finish();
});

test("JSON flags over a broken text are repaired by a save", async () => {
  await store("damaged", JSON_FLAGS, "{oops");
  const page = await enter(server);
  const value = await open(page, "damaged");
  assert.equal(await page.getByLabel("Stored as").inputValue(), "text");
  await value.fill("{oops}");
  await save(page, "damaged");
  assert.deepEqual(await stored("damaged"), { text: "{oops}", flags: TEXT_FLAGS });
  await page.finish();
});

test("a new document has the flags of its format", async () => {
  const page = await enter(server);
  const create = async (key, text) => {
    await visit(page, "#/documents/default", "Documents");
    await page.getByRole("button", { name: "New document" }).click();
    await page.getByLabel("Key", { exact: true }).fill(key);
    await page.getByLabel("Value", { exact: true }).fill(text);
    await page.getByLabel("Value", { exact: true }).press("Control+Enter");
  };
  await create("fresh", '{"n": 1}');
  await page.getByRole("heading", { level: 1, name: "fresh" }).waitFor();
  assert.deepEqual(await stored("fresh"), { text: '{"n":1}', flags: JSON_FLAGS });
  await create("words", "some words");
  await question(page).waitFor();
  assert.equal((await server.request("GET", `${DOCS}/words`)).status, 404);
  await page.getByRole("button", { name: "Store it as text" }).click();
  await page.getByRole("heading", { level: 1, name: "words" }).waitFor();
  assert.deepEqual(await stored("words"), { text: "some words", flags: TEXT_FLAGS });
  await page.finish();
});

test("a file over JSON names its format and sets its flags", async () => {
  await store("filed", JSON_FLAGS, '{"n":1}');
  const page = await enter(server);
  await open(page, "filed");
  const replace = async (content) => {
    const file = { name: "new", mimeType: "application/octet-stream", buffer: Buffer.from(content) };
    await page.locator("input[type=file]").setInputFiles(file);
    return page.getByRole("dialog", { name: "Replace the value" });
  };
  const ended = () => readMessage(page, "Replaced the value of filed.");
  let dialog = await replace('{"n":2}');
  assert.equal(await dialog.getByText("The document is JSON").count(), 0);
  await dialog.getByRole("button", { name: "Replace the value" }).click();
  await ended();
  assert.deepEqual(await stored("filed"), { text: '{"n":2}', flags: JSON_FLAGS });
  dialog = await replace([0xff, 0xfe]);
  await dialog.getByText("The document is JSON and becomes bytes").waitFor();
  await dialog.getByRole("button", { name: "Replace the value" }).click();
  await ended();
  assert.equal((await stored("filed")).flags, BYTES_FLAGS);
  await page.finish();
});
