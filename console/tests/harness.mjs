// A fresh server, a browser, and the checks that every test makes: no error in the browser's console, no
// request to another site, nothing serious by axe-core.
//
//   ORIBI_BIN       the server, target/debug/oribi unless given
//   CHROMIUM        the browser, /usr/bin/chromium unless given
//   CONSOLE_DEV=1   serve the page from the sources instead of the binary
//   SCREENSHOTS     where screenshots go, console/screenshots unless given

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createConnection } from "node:net";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { serve } from "../dev.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const binary = process.env.ORIBI_BIN ?? join(here, "../../target/debug/oribi");
const screenshots = process.env.SCREENSHOTS ?? join(here, "../screenshots");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Machines stall. */
const DEADLINE_MS = 60_000;

const BROWSER_FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export const ADMIN = ["Administrator", "password"];

/** Starts a server with these users, `name: [role, ...]`, whose passwords are `secret1`. */
export async function startServer({ users = {}, flags = [] } = {}) {
  const directory = mkdtempSync(join(tmpdir(), "oribi-console-"));
  const data = join(directory, "data");
  const ready = join(directory, "ready");
  for (const [name, roles] of Object.entries(users)) {
    const given = roles.flatMap((role) => ["--role", role]);
    execFileSync(binary, ["user", "add", name, ...given, "--password-stdin", "--data-dir", data], {
      input: "secret1\n",
    });
  }
  const usual = ["--port", "0", "--admin-port", "0", "--query-port", "0", "--workers", "1", "--memory-quota-mib", "256", "--log", "warn"];
  const process = spawn(binary, ["serve", "--data-dir", data, ...usual, "--ready-file", ready, ...flags], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  const ended = new Promise((end) => process.on("exit", end));
  const until = Date.now() + DEADLINE_MS;
  while (!existsSync(ready)) {
    assert.ok(Date.now() < until && process.exitCode === null, "the server is not ready");
    await pause(20);
  }
  const ports = JSON.parse(readFileSync(ready, "utf8"));
  const admin = ports.admin_port;
  const proxy = globalThis.process.env.CONSOLE_DEV ? await serve(0, admin) : undefined;
  const page = proxy ? proxy.address().port : admin;
  return {
    origin: `http://localhost:${page}`,
    port: ports.port,
    adminPort: admin,
    process,
    async stop() {
      proxy?.close();
      proxy?.closeAllConnections();
      process.kill("SIGTERM");
      await ended;
      rmSync(directory, { recursive: true, force: true });
    },
    /** A request past the page. */
    async request(method, path, body, [name, password] = ADMIN) {
      const authorization = "Basic " + Buffer.from(`${name}:${password}`).toString("base64");
      const headers = { authorization };
      if (body instanceof URLSearchParams) headers["content-type"] = "application/x-www-form-urlencoded";
      const response = await fetch(`http://localhost:${admin}${path}`, { method, headers, body });
      const text = await response.text();
      return { status: response.status, text, json: () => JSON.parse(text) };
    },
  };
}

const none = Buffer.alloc(0);

/** A request of memcached's binary protocol. */
export function frame(opcode, key = "", extras = none, value = "") {
  const head = Buffer.alloc(24);
  head.writeUInt8(0x80, 0);
  head.writeUInt8(opcode, 1);
  head.writeUInt16BE(Buffer.byteLength(key), 2);
  head.writeUInt8(extras.length, 4);
  head.writeUInt32BE(extras.length + Buffer.byteLength(key) + Buffer.byteLength(value), 8);
  return Buffer.concat([head, extras, Buffer.from(key), Buffer.from(value)]);
}

export const OPCODES = { GET: 0x00, NOOP: 0x0a, SET_QUIET: 0x11, SASL_AUTH: 0x21 };

export const logInFrame = () => frame(OPCODES.SASL_AUTH, "PLAIN", none, `\0${ADMIN.join("\0")}`);

/** Writes documents as a client of memcached's binary protocol does, all in one go. */
export async function writeDocuments(port, documents) {
  const socket = createConnection(port, "127.0.0.1");
  const answers = [];
  let bytes = 0;
  let awaited = { count: Infinity, enough: () => {} };
  socket.on("data", (part) => {
    answers.push(part);
    bytes += part.length;
    if (bytes >= awaited.count) awaited.enough();
  });
  const answered = (count) =>
    new Promise((enough, failed) => {
      socket.once("error", failed);
      awaited = { count, enough };
    });
  const HEAD_BYTES = 24;
  socket.write(logInFrame());
  await answered(HEAD_BYTES);
  assert.equal(Buffer.concat(answers).readUInt16BE(6), 0, "the login");
  const before = bytes;
  let batch = [];
  for (const [key, value] of documents) {
    batch.push(frame(OPCODES.SET_QUIET, key, Buffer.alloc(8), value));
    if (batch.length === 5000) {
      socket.write(Buffer.concat(batch));
      batch = [];
    }
  }
  socket.write(Buffer.concat([...batch, frame(OPCODES.NOOP)]));
  // A write that fails is answered, and nothing else before the NOOP.
  await answered(before + HEAD_BYTES);
  const status = Buffer.concat(answers).readUInt16BE(before + 6);
  assert.ok(status === 0 && bytes - before === HEAD_BYTES, `a write failed with status ${status}`);
  socket.destroy();
}

let browser;

/** Pages that no test has finished yet, and their requests without an answer or its end. */
const unfinished = new Map();

// A test that failed says what it left behind, and leaves nothing to the next one.
afterEach(async () => {
  for (const [page, requests] of unfinished) {
    const under = [...requests].map((request) => `${request.method()} ${request.url()}`);
    const shown = await page.locator("body").innerText().catch(String);
    console.error(`${page.url()} was left with requests [${under}] and shows:\n${shown}`);
    await page.context().close();
  }
  unfinished.clear();
});

export async function startBrowser() {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  browser = await chromium.launch({ executablePath, args: BROWSER_FLAGS });
  return browser;
}

export const stopBrowser = () => browser?.close();

/** A fresh page, which fails the test when the browser reports an error. */
export async function openPage(server, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  context.setDefaultTimeout(DEADLINE_MS);
  const page = await context.newPage();
  const problems = [];
  const expected = (text) => /status of (40[0-9]|409|42[0-9])/.test(text);
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !expected(message.text())) problems.push(message.text());
  });
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(server.origin) && !url.startsWith("data:")) problems.push(`a request to ${url}`);
  });
  const requests = new Set();
  unfinished.set(page, requests);
  page.on("request", (request) => requests.add(request));
  for (const end of ["requestfinished", "requestfailed"]) page.on(end, (request) => requests.delete(request));
  page.on("dialog", (dialog) => problems.push(`a native dialog: ${dialog.message()}`));
  await page.goto(`${server.origin}/console/`);
  return Object.assign(page, {
    problems,
    async finish() {
      assert.deepEqual(problems, []);
      unfinished.delete(page);
      await context.close();
    },
  });
}

export async function logIn(page, [name, password] = ADMIN) {
  await page.getByLabel("User").fill(name);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
}

/** A fresh page with a user in it. */
export async function enter(server, user = ADMIN, options = {}) {
  const page = await openPage(server, options);
  await logIn(page, user);
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
  return page;
}

export async function visit(page, hash, heading) {
  await page.evaluate((hash) => (location.hash = hash), hash);
  await page.getByRole("heading", { level: 1, name: heading }).waitFor();
}

/** Waits for this message and dismisses it, so that a later wait for the same text waits for a new one. */
export async function readMessage(page, text) {
  const message = page.locator(".message", { hasText: text });
  await message.getByRole("button", { name: "Dismiss this message" }).click();
  await message.waitFor({ state: "detached" });
}

/** Nothing serious by axe-core. The script goes past the policy, which would refuse it in the page. */
export async function checkAccess(page, name) {
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: axe });
  const { result, exceptionDetails } = await session.send("Runtime.evaluate", {
    expression: `axe.run(document).then((found) => JSON.stringify(found.violations.map(
      ({ id, impact, nodes }) => ({ id, impact, nodes: nodes.map((node) => node.html.slice(0, 160)) }))))`,
    awaitPromise: true,
    returnByValue: true,
  });
  assert.equal(exceptionDetails, undefined);
  const serious = JSON.parse(result.value).filter(({ impact }) => ["serious", "critical"].includes(impact));
  assert.deepEqual(serious, [], `axe-core on ${name}`);
}

export async function screenshot(page, name) {
  mkdirSync(screenshots, { recursive: true });
  await page.screenshot({ path: join(screenshots, `${name}.png`) });
}
