// The console of a cluster: two nodes over Kudu and etcd, and what each shows of the other.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { startStores, whatIsMissing } from "./cluster.mjs";
import { checkAccess, enter, screenshot, startBrowser, startServer, stopBrowser, visit } from "./harness.mjs";

const VBUCKETS = 64;
const LEASE_S = 4;
const missing = whatIsMissing();
if (missing) console.log(`SKIPPED: the console on a cluster: ${missing}`);

let stores;
const nodes = [];

function startNode(name) {
  const storage = `kudu://${stores.masters}/console?tablets=2&replicas=1`;
  const shared = ["--storage", storage, "--cluster-etcd", stores.etcd, "--cluster-lease-s", String(LEASE_S)];
  return startServer({ flags: [...shared, "--node-name", name] });
}

before(async () => {
  if (missing) return;
  [stores] = await Promise.all([startStores(), startBrowser()]);
  for (const name of ["one", "two"]) nodes.push(await startNode(name));
});

after(async () => {
  await stopBrowser();
  await Promise.all(nodes.map((node) => node.stop()));
  await stores?.stop();
});

/** Rows of a table, as texts of their cells. */
const rowsOf = (page, caption) =>
  page.getByRole("table", { name: caption }).locator("tbody tr").evaluateAll((rows) =>
    rows.map((row) => [...row.cells].map((cell) => cell.textContent.trim())),
  );

/** Clicks "Refresh" until the page shows this many vbuckets of each address. */
async function waitForShares(page, expected) {
  const end = Date.now() + 60_000;
  let shares;
  do {
    await page.getByRole("button", { name: "Refresh" }).click();
    shares = {};
    for (const [, address] of await rowsOf(page, "vbuckets")) shares[address] = (shares[address] ?? 0) + 1;
    if (isDeepStrictEqual(shares, expected)) return;
    await page.waitForTimeout(200);
  } while (Date.now() < end);
  assert.deepEqual(shares, expected);
}

test("each node shows both nodes, and which has which vbucket", { skip: missing }, async () => {
  const addresses = nodes.map(({ port }) => `127.0.0.1:${port}`);
  for (const [at, node] of nodes.entries()) {
    const page = await enter(node);
    await visit(page, "#/nodes", "Nodes and vbuckets");
    await waitForShares(page, { [addresses[0]]: VBUCKETS / 2, [addresses[1]]: VBUCKETS / 2 });
    const shown = (await rowsOf(page, "Nodes")).map(([address, , , port]) => [address, port]);
    const places = nodes.map(({ port, adminPort }) => [`127.0.0.1:${adminPort}`, String(port)]);
    assert.deepEqual(shown, [places[at], places[1 - at]], "this node comes first");
    const vbuckets = await rowsOf(page, "vbuckets");
    for (const [vbucket, address, state, documents] of vbuckets) {
      const expected = address === addresses[at] ? ["active", "0"] : ["on another node", "–"];
      assert.deepEqual([state, documents], expected, `vbucket ${vbucket}`);
    }
    await page.getByText("64 vbuckets, 32 active, 32 on another node; 2 node(s).").waitFor();
    await checkAccess(page, "nodes of a cluster");
    await screenshot(page, `nodes-cluster-${at + 1}`);
    await page.finish();
  }
});

test("the map follows a node that leaves", { skip: missing }, async () => {
  const [one, two] = nodes;
  const page = await enter(one);
  await visit(page, "#/nodes", "Nodes and vbuckets");
  await waitForShares(page, { [`127.0.0.1:${one.port}`]: VBUCKETS / 2, [`127.0.0.1:${two.port}`]: VBUCKETS / 2 });
  await two.stop();
  nodes.pop();
  await waitForShares(page, { [`127.0.0.1:${one.port}`]: VBUCKETS });
  const states = (await rowsOf(page, "vbuckets")).map(([, , state]) => state);
  assert.deepEqual(new Set(states), new Set(["active"]));
  await page.finish();
});
