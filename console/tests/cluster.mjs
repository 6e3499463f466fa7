// What several nodes share: a real Kudu and a real etcd, each a process on the loopback interface.
//
//   ORIBI_KUDU_HOME       the directory of an unpacked Kudu, which tests/kudu/fetch prints
//   ORIBI_KUDU_REQUIRED   set where a missing Kudu or etcd is a failure, as in CI

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

/** Machines stall. */
const DEADLINE_MS = 60_000;

/** Says why there can be no cluster here; `undefined` when there can be one. */
export function whatIsMissing() {
  let missing;
  if (!process.env.ORIBI_KUDU_HOME) missing = "ORIBI_KUDU_HOME is not set; tests/kudu/fetch prints what to set it to";
  try {
    execFileSync("etcd", ["--version"], { stdio: "ignore" });
  } catch {
    missing = "etcd is not installed";
  }
  assert.ok(!missing || !process.env.ORIBI_KUDU_REQUIRED, missing);
  return missing;
}

/** Ports that were free a moment ago. */
async function freePorts(count) {
  const servers = Array.from({ length: count }, () => createServer());
  await Promise.all(servers.map((server) => new Promise((done) => server.listen(0, "127.0.0.1", done))));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  return ports;
}

async function until(what, isSo) {
  const end = Date.now() + DEADLINE_MS;
  while (!(await isSo())) {
    assert.ok(Date.now() < end, what);
    await pause(50);
  }
}

/** Starts one master, one tablet server and one etcd. */
export async function startStores() {
  const home = process.env.ORIBI_KUDU_HOME;
  const directory = mkdtempSync(join(tmpdir(), "oribi-console-stores-"));
  const [master, tabletServer, etcd, peers] = await freePorts(4);
  const env = { ...process.env, LD_LIBRARY_PATH: join(home, "lib"), SASL_PATH: join(home, "lib/sasl2") };
  const processes = [];
  const start = (name, program, args, env) => {
    const log = openSync(join(directory, `${name}.log`), "w");
    // They end with the tests, however those end.
    const command = ["--pdeathsig", "KILL", program, ...args];
    processes.push(spawn("setpriv", command, { stdio: ["ignore", log, log], env }));
  };
  const kudu = (name, port, ...more) => {
    const place = join(directory, name);
    mkdirSync(place);
    const usual = ["--unlock_unsafe_flags", "--unlock_experimental_flags", "--time_source=system_unsync"];
    const own = [`--fs_wal_dir=${place}/data`, `--rpc_bind_addresses=127.0.0.1:${port}`, "--logtostderr"];
    start(name, join(home, "bin", name), [...usual, "--never_fsync", "--webserver_enabled=false", ...own, ...more], env);
  };
  const masters = `127.0.0.1:${master}`;
  kudu("kudu-master", master);
  kudu("kudu-tserver", tabletServer, `--tserver_master_addrs=${masters}`);
  const url = (port) => `http://127.0.0.1:${port}`;
  const client = ["--listen-client-urls", url(etcd), "--advertise-client-urls", url(etcd)];
  const peer = ["--listen-peer-urls", url(peers), "--initial-advertise-peer-urls", url(peers)];
  const all = [...client, ...peer, "--initial-cluster", `default=${url(peers)}`, "--unsafe-no-fsync"];
  start("etcd", "etcd", ["--data-dir", join(directory, "etcd"), ...all], process.env);
  const stop = async () => {
    for (const started of processes) started.kill("SIGKILL");
    await Promise.all(processes.map((one) => one.exitCode ?? one.signalCode ?? new Promise((end) => one.on("exit", end))));
    rmSync(directory, { recursive: true, force: true });
  };
  try {
    await until("etcd answers", () => fetch(`${url(etcd)}/health`).then((answer) => answer.ok, () => false));
    const tool = (...args) => execFileSync(join(home, "bin/kudu"), [...args], { env, stdio: "pipe" }).toString();
    await until("Kudu is healthy", () => {
      try {
        return JSON.parse(tool("cluster", "ksck", masters, "-ksck_format=json_compact")).tserver_summaries.length === 1;
      } catch {
        return false;
      }
    });
  } catch (error) {
    await stop();
    throw error;
  }
  return { masters, etcd: url(etcd), stop };
}
