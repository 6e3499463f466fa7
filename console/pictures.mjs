// Takes the pictures of docs/console/, with documents and clients that work meanwhile.
//
//   npm run pictures

import { createConnection } from "node:net";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import * as harness from "./tests/harness.mjs";

const pictures = join(dirname(fileURLToPath(import.meta.url)), "../docs/console");
const DOCUMENTS = 50_000;
const LOAD_S = 60;
const EVERY_MS = 50;
const READS = 120;
const WRITES = 25;

const people = ["Ada", "Bo", "Chi", "Dara", "Eli"];
const keyOf = (number) => `order-${String(number).padStart(6, "0")}`;
const valueOf = (number) =>
  JSON.stringify({ number, customer: people[number % people.length], total: (number * 37) % 10_000, items: [number % 7] });

/** Reads and writes at a rate that goes up and down. */
function work(port) {
  const socket = createConnection(port, "127.0.0.1").resume();
  socket.write(harness.logInFrame());
  let turn = 0;
  const any = (count) => Math.floor(Math.random() * count);
  const timer = setInterval(() => {
    const level = 1 + 0.5 * Math.sin(turn++ / 60);
    const reads = Array.from({ length: READS * level }, () => harness.frame(harness.OPCODES.GET, keyOf(any(DOCUMENTS * 1.03))));
    const writes = Array.from({ length: WRITES * level }, () => {
      const number = any(DOCUMENTS);
      return harness.frame(harness.OPCODES.SET_QUIET, keyOf(number), Buffer.alloc(8), valueOf(number));
    });
    socket.write(Buffer.concat([...reads, ...writes]));
  }, EVERY_MS);
  return () => (clearInterval(timer), socket.destroy());
}

const server = await harness.startServer();
await harness.startBrowser();
await harness.writeDocuments(
  server.port,
  Array.from({ length: DOCUMENTS }, (_, number) => [keyOf(number), valueOf(number)]),
);
const take = (page, name) => page.screenshot({ path: join(pictures, `${name}.png`) });

const page = await harness.enter(server);
const rest = work(server.port);
await pause(LOAD_S * 1000);
await take(page, "overview");
rest();

await harness.visit(page, "#/documents/default?prefix=order-0001", "Documents");
await page.getByRole("link", { name: keyOf(100), exact: true }).waitFor();
await page.setViewportSize({ width: 1280, height: 560 });
await take(page, "documents");
await page.getByRole("link", { name: keyOf(100), exact: true }).click();
const value = page.getByRole("textbox", { name: "Value" });
await value.fill('{\n  "number": 100,\n  "customer": "Ada",\n  "total": 4000\n}');
const path = `/pools/default/buckets/default/docs/${keyOf(100)}`;
await server.request("PUT", path, '{"number":100,"customer":"Ada","total":3700,"paid":true}');
await value.press("Control+Enter");
await page.getByRole("dialog").getByText('"paid": true').waitFor();
await take(page, "conflict");
await page.finish();
await harness.stopBrowser();
await server.stop();
