// The nodes, and what each vbucket of a bucket does.

import { useState } from "preact/hooks";
import { bucketPath, get, path } from "../api";
import { useApp } from "../app";
import { age, count } from "../format";
import { may } from "../rights";
import { Busy, Failure, NoBucket, SelectField, Table, useAsked } from "../ui";
import { buckets } from "./catalog";

interface Node {
  hostname: string;
  version: string;
  status: string;
  os: string;
  uptime: string;
  ports: { direct: number; httpsMgmt?: number };
}

interface Terse {
  vBucketServerMap?: { serverList: string[]; vBucketMap: number[][] };
}

interface Vbucket {
  vbucket: number;
  state: string;
  items?: number;
  evicted?: number;
  queue_items?: number;
  high_seqno?: string;
  persisted_seqno?: string;
  uuid?: string;
}

/** A node of the cluster, as this one knows it. */
interface Peer {
  hostname?: string;
  services: { kv?: number; mgmt?: number };
  thisNode?: boolean;
}

function Nodes() {
  const asked = useAsked((signal) => get<{ clusterName: string; nodes: Node[] }>("/pools/default", {}, signal), []);
  const all = useAsked((signal) => get<{ nodesExt: Peer[] }>("/pools/default/nodeServices", {}, signal), []);
  const others = all.value?.nodesExt.filter((peer) => !peer.thisNode) ?? [];
  return (
    <section>
      <Failure error={asked.error ?? all.error} again={() => (asked.again(), all.again())} />
      {!asked.value && asked.isBusy && <Busy />}
      {asked.value?.clusterName && <p>Cluster: {asked.value.clusterName}</p>}
      {asked.value && (
        <Table caption="Nodes" columns={["Address", "State", "Version", ["Port of clients", "number"], "System", "Up"]}>
          {asked.value.nodes.map((node) => (
            <tr key={node.hostname}>
              <th scope="row">{node.hostname}</th>
              <td>{node.status}</td>
              <td>{node.version}</td>
              <td class="number">{node.ports.direct}</td>
              <td>{node.os}</td>
              <td>{age(Number(node.uptime))}</td>
            </tr>
          ))}
          {others.map(({ hostname = "?", services }) => (
            <tr key={`${hostname}:${services.mgmt}`}>
              <th scope="row">
                {hostname}:{services.mgmt}
              </th>
              <td>in the cluster</td>
              <td class="muted">its own console tells</td>
              <td class="number">{services.kv}</td>
              <td>–</td>
              <td>–</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

function VbucketTable({ rows, owners }: { rows: Vbucket[]; owners: string[] }) {
  return (
    <Table
      caption="vbuckets"
      columns={[
        ["vbucket", "number"],
        "Node",
        "State",
        ["Documents", "number"],
        ["Evicted", "number"],
        ["Queue", "number"],
        ["High seqno", "number"],
        ["Persisted", "number"],
        "UUID",
      ]}
    >
      {rows.map((row) => (
        <tr key={row.vbucket}>
          <th scope="row" class="number">
            {row.vbucket}
          </th>
          <td>{owners[row.vbucket] ?? "–"}</td>
          <td>{row.state}</td>
          <td class="number">{count(row.items ?? 0)}</td>
          <td class="number">{count(row.evicted ?? 0)}</td>
          <td class="number">{count(row.queue_items ?? 0)}</td>
          <td class="number">{row.high_seqno}</td>
          <td class="number">{row.persisted_seqno}</td>
          <td>
            <code>{row.uuid}</code>
          </td>
        </tr>
      ))}
    </Table>
  );
}

const GRADES = 5;

/** A square for each vbucket; the darker, the more documents it has. The table has the numbers. */
function VbucketGrid({ rows }: { rows: Vbucket[] }) {
  const most = Math.max(1, ...rows.map((row) => row.items ?? 0));
  const grade = (row: Vbucket) =>
    row.state !== "active" ? "away" : `grade-${Math.ceil(((row.items ?? 0) / most) * GRADES)}`;
  return (
    <div class="grid" aria-hidden="true">
      {rows.map((row) => (
        <span class={grade(row)} key={row.vbucket} title={`vbucket ${row.vbucket}: ${count(row.items ?? 0)} documents`} />
      ))}
    </div>
  );
}

function Vbuckets({ bucket }: { bucket: string }) {
  const { user } = useApp();
  const maySee = may(user, "simple-stats", bucket);
  const map = useAsked((signal) => get<Terse>(path("pools", "default", "b", bucket), {}, signal), [bucket]);
  const asked = useAsked(
    (signal) =>
      maySee
        ? get<{ vbuckets: Vbucket[] }>(bucketPath(bucket, "vbuckets"), {}, signal)
        : Promise.resolve({ vbuckets: [] }),
    [bucket],
  );
  const server = map.value?.vBucketServerMap;
  const owners = server?.vBucketMap.map(([active]) => server.serverList[active ?? -1]?.replace("$HOST", location.hostname) ?? "none") ?? [];
  const rows = maySee
    ? (asked.value?.vbuckets ?? [])
    : owners.map((_, vbucket): Vbucket => ({ vbucket, state: "active" }));
  const states = new Map<string, number>();
  for (const row of rows) states.set(row.state, (states.get(row.state) ?? 0) + 1);
  return (
    <>
      <Failure error={asked.error ?? map.error} again={asked.again} />
      {asked.isBusy && !asked.value && <Busy />}
      <p>
        {rows.length} vbuckets
        {[...states].map(([state, number]) => `, ${number} ${state}`).join("")} on {new Set(owners).size} node(s).{" "}
        <button type="button" onClick={asked.again}>
          Refresh
        </button>
      </p>
      <VbucketGrid rows={rows} />
      <VbucketTable rows={rows} owners={owners} />
    </>
  );
}

export function NodesPage() {
  const asked = useAsked(buckets, []);
  const [chosen, setChosen] = useState("");
  const names = asked.value?.map(({ name }) => name) ?? [];
  const bucket = names.includes(chosen) ? chosen : names[0];
  return (
    <>
      <h1>Nodes and vbuckets</h1>
      <Nodes />
      <div class="heading">
        <h2>vbucket map</h2>
        {bucket && <SelectField label="Bucket" value={bucket} options={names} change={setChosen} />}
      </div>
      <Failure error={asked.error} again={asked.again} />
      {asked.value?.length === 0 && <NoBucket />}
      {bucket && <Vbuckets bucket={bucket} key={bucket} />}
    </>
  );
}
