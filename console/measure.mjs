// Measures the console in Chromium: time to the first paint, and processor time while it is idle.
//
//   npm run measure [-- SECONDS]      ORIBI_BIN names the server, best a release build
//
// First paint: medians over fresh browser contexts, so nothing is cached. Idle: the overview is open and no
// client works; processor time of all processes of the browser and of the server, as a part of one core.

import { readFileSync, readdirSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { enter, openPage, startBrowser, startServer, stopBrowser } from "./tests/harness.mjs";

const LOADS = 15;
const TICKS_PER_S = 100;
/** After this the page has noticed that nothing happens. */
const SETTLE_S = 20;
const seconds = Number(process.argv[2] ?? 60);

const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** Ticks of all processes below this one whose command has a word, and of their children. */
function ticks(isMeant) {
  let sum = 0;
  for (const id of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const command = readFileSync(`/proc/${id}/cmdline`, "utf8");
      if (!isMeant(command, Number(id))) continue;
      const fields = readFileSync(`/proc/${id}/stat`, "utf8").split(") ")[1].split(" ");
      sum += Number(fields[11]) + Number(fields[12]);
    } catch {
      // It has ended.
    }
  }
  return sum;
}

const server = await startServer();
await startBrowser();
const paints = [];
const overviews = [];
for (let load = 0; load < LOADS; load++) {
  const page = await openPage(server);
  await page.getByLabel("Password").waitFor();
  const paint = await page.evaluate(
    () =>
      new Promise((seen) => {
        new PerformanceObserver((list) => seen(list.getEntriesByName("first-contentful-paint")[0].startTime)).observe({
          type: "paint",
          buffered: true,
        });
      }),
  );
  paints.push(paint);
  await page.getByLabel("User").fill("Administrator");
  await page.getByLabel("Password").fill("password");
  const began = Date.now();
  await page.getByRole("button", { name: "Log in" }).click();
  await page.locator("canvas").first().waitFor();
  overviews.push(Date.now() - began);
  await page.finish();
}
console.log(`first contentful paint: ${median(paints).toFixed(0)} ms, of ${LOADS} loads`);
console.log(`login to the first chart: ${median(overviews)} ms`);

const page = await enter(server);
await page.locator("canvas").nth(6).waitFor();
await pause(SETTLE_S * 1000);
const profile = /--user-data-dir=([^\0]+)/;
const isBrowser = (command) => command.includes("chromium") && profile.test(command) && command.includes("playwright");
const isServer = (_command, id) => id === server.process.pid;
const before = [ticks(isBrowser), ticks(isServer)];
await pause(seconds * 1000);
const part = (now, then) => (((now - then) / TICKS_PER_S / seconds) * 100).toFixed(2);
console.log(`idle for ${seconds} s, browser: ${part(ticks(isBrowser), before[0])} % of a core`);
console.log(`idle for ${seconds} s, server: ${part(ticks(isServer), before[1])} % of a core`);
await page.finish();
await stopBrowser();
await server.stop();
