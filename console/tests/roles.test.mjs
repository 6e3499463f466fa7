// Roles as choices, and pages that a user has no right to.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { checkAccess, enter, readMessage, screenshot, startBrowser, startServer, stopBrowser, visit } from "./harness.mjs";

const ROOT = ["root", "secret1"];
const READER = ["reader", "secret1"];

let server;

before(async () => {
  const users = { root: ["admin"], reader: ["read-only:default"], mixed: ["read-only+insert:default"] };
  [server] = await Promise.all([startServer({ users }), startBrowser()]);
  const scopes = "/pools/default/buckets/default/scopes";
  for (const [path, name] of [[scopes, "eu"], [`${scopes}/eu/collections`, "orders"]]) {
    assert.equal((await server.request("POST", path, new URLSearchParams({ name }), ROOT)).status, 200);
  }
});

after(async () => {
  await stopBrowser();
  await server?.stop();
});

const rolesOf = async (name) => {
  const { roles } = (await server.request("GET", `/settings/rbac/users/local/${name}`, undefined, ROOT)).json();
  return roles.map(({ role, bucket_name: bucket, scope_name: scope, collection_name: collection }) =>
    [role, bucket, scope, collection].filter((part) => part !== undefined && part !== "*").join(" "),
  );
};

test("roles are chosen with bucket, scope and collection", async () => {
  const page = await enter(server, ROOT);
  await visit(page, "#/users", "Users and roles");
  await page.getByRole("button", { name: "New user" }).click();
  await page.getByLabel("User name").fill("ann");
  await page.getByLabel("Password", { exact: true }).fill("secret1");
  const choose = (label, option) => page.getByLabel(label, { exact: true }).last().selectOption(option);
  await choose("Role", "data_reader");
  await choose("Bucket", "default");
  await choose("Scope", "eu");
  await choose("Collection", "orders");
  await page.getByRole("button", { name: "Add a role" }).click();
  await choose("Role", "bucket_full_access");
  assert.equal(await page.getByLabel("Scope", { exact: true }).count(), 1, "a role of whole buckets has no scope");
  await page.getByRole("button", { name: "Add a role" }).click();
  await page.getByRole("button", { name: "Remove the role read-only[*]" }).click();
  await checkAccess(page, "roles");
  await screenshot(page, "roles");
  await page.getByRole("button", { name: "Save" }).click();
  await readMessage(page, "Saved the user ann.");
  assert.deepEqual(await rolesOf("ann"), ["data_reader default eu orders", "bucket_full_access"]);
  await page.finish();
});

test("a role that is no choice stays as it is", async () => {
  const page = await enter(server, ROOT);
  await visit(page, "#/users", "Users and roles");
  const before = await rolesOf("mixed");
  await page.getByRole("button", { name: "Change mixed" }).click();
  await page.getByLabel("Full name").fill("Max Example");
  await page.getByRole("button", { name: "Save" }).click();
  await readMessage(page, "Saved the user mixed.");
  assert.deepEqual(await rolesOf("mixed"), before);
  await page.finish();
});

test("a page without a right says so", async () => {
  const page = await enter(server, READER);
  await visit(page, "#/users", "No such page");
  await page.getByText("Your user has no right to this page").waitFor();
  await page.finish();
});
