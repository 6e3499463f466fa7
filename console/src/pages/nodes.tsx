// The nodes, and what each vbucket of a bucket does.

import { useState } from "preact/hooks";
import { bucketPath, get, path } from "../api";
import { useApp } from "../app";
import { age, count } from "../format";
import { may } from "../rights";
import { Table } from "../table";
import { Busy, Failure, LastKnown, NoBucket, SelectField, useAsked } from "../ui";
import { buckets } from "./catalog";
import { ClusterSection } from "./cluster";

/** Of the other nodes only the address and the state are known. */
interface Node {
  hostname: string;
  version?: string;
  status: string;
  os?: string;
  uptime?: string;
  ports?: { direct: number; httpsMgmt?: number };
  thisNode?: boolean;
}

interface Terse {
  nodesExt?: Peer[];
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

const ELSEWHERE = "on another node";

function Nodes({ round }: { round: number }) {
  const asked = useAsked((signal) => get<{ clusterName: string; nodes: Node[] }>("/pools/default", {}, signal), [round]);
  const { user } = useApp();
  const all = useAsked((signal) => get<{ nodesExt: Peer[] }>("/pools/default/nodeServices", {}, signal), [round]);
  const own = all.value?.nodesExt.find((peer) => peer.thisNode);
  // As the other nodes know it, not as this browser does.
  const addressOf = (node: Node) => (node.thisNode && own?.hostname ? `${own.hostname}:${own.services.mgmt}` : node.hostname);
  return (
    <section>
      <Failure error={asked.error ?? all.error} again={() => (asked.again(), all.again())} />
      {!asked.value && asked.isBusy && <Busy />}
      {asked.value?.clusterName && <p>Cluster: {asked.value.clusterName}</p>}
      {asked.value && (
        <LastKnown error={asked.error ?? all.error}>
          <Table caption="Nodes" columns={["Address", "State", "Version", ["Data port", "number"], "System", "Up"]}>
            {asked.value.nodes.map((node) => (
              <tr key={node.hostname}>
                <th scope="row">{addressOf(node)}</th>
                <td>{node.status}</td>
                <td class={node.version ? undefined : "muted"}>{node.version ?? "see its console"}</td>
                <td class="number">{node.ports?.direct ?? "–"}</td>
                <td>{node.os ?? "–"}</td>
                <td>{node.uptime ? age(Number(node.uptime)) : "–"}</td>
              </tr>
            ))}
          </Table>
        </LastKnown>
      )}
      {(asked.value?.nodes.length ?? 0) > 1 && may(user, "simple-stats", "*") && <ClusterSection round={round} />}
    </section>
  );
}

/** "–" for what only the other node can say. */
const figure = (number: number | undefined) => (number === undefined ? "–" : count(number));

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
          <td class="number">{figure(row.items)}</td>
          <td class="number">{figure(row.evicted)}</td>
          <td class="number">{figure(row.queue_items)}</td>
          <td class="number">{row.high_seqno ?? "–"}</td>
          <td class="number">{row.persisted_seqno ?? "–"}</td>
          <td>
            <code>{row.uuid ?? "–"}</code>
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
    row.state === ELSEWHERE ? "elsewhere" : row.state !== "active" ? "away" : `grade-${Math.ceil(((row.items ?? 0) / most) * GRADES)}`;
  return (
    <div class="grid" aria-hidden="true">
      {rows.map((row) => (
        <span class={grade(row)} key={row.vbucket} title={`vbucket ${row.vbucket}: ${row.state === ELSEWHERE ? ELSEWHERE : `${count(row.items ?? 0)} documents`}`} />
      ))}
    </div>
  );
}

function Vbuckets({ bucket, round, refresh }: { bucket: string; round: number; refresh: () => void }) {
  const { user } = useApp();
  const maySee = may(user, "simple-stats", bucket);
  const map = useAsked((signal) => get<Terse>(path("pools", "default", "b", bucket), {}, signal), [bucket, round]);
  const asked = useAsked(
    (signal) =>
      maySee
        ? get<{ vbuckets: Vbucket[] }>(bucketPath(bucket, "vbuckets"), {}, signal)
        : Promise.resolve({ vbuckets: [] }),
    [bucket, round],
  );
  const server = map.value?.vBucketServerMap;
  const owners = server?.vBucketMap.map(([active]) => server.serverList[active ?? -1]?.replace("$HOST", location.hostname) ?? "none") ?? [];
  // This node has nothing of a vbucket that another one serves.
  const own = map.value?.nodesExt?.findIndex((peer) => peer.thisNode) ?? -1;
  const isElsewhere = ({ vbucket, state }: Vbucket) => {
    const active = server?.vBucketMap[vbucket]?.[0] ?? -1;
    return state === "dead" && active >= 0 && active !== own;
  };
  const rows = maySee
    ? (asked.value?.vbuckets ?? []).map((row): Vbucket =>
        isElsewhere(row) ? { vbucket: row.vbucket, state: ELSEWHERE } : row,
      )
    : owners.map((_, vbucket): Vbucket => ({ vbucket, state: "active" }));
  const states = new Map<string, number>();
  for (const row of rows) states.set(row.state, (states.get(row.state) ?? 0) + 1);
  return (
    <>
      <Failure error={asked.error ?? map.error} again={refresh} />
      {asked.isBusy && !asked.value && <Busy />}
      <p>
        {rows.length} vbuckets
        {[...states].sort().map(([state, number]) => `, ${number} ${state}`).join("")}; {new Set(owners).size} node(s).{" "}
        <button type="button" onClick={refresh}>
          Refresh
        </button>
      </p>
      <LastKnown error={asked.error ?? map.error}>
        <VbucketGrid rows={rows} />
        <VbucketTable rows={rows} owners={owners} />
      </LastKnown>
    </>
  );
}

export function NodesPage() {
  const asked = useAsked(buckets, []);
  const [chosen, setChosen] = useState("");
  const [round, setRound] = useState(0);
  const names = asked.value?.map(({ name }) => name) ?? [];
  const bucket = names.includes(chosen) ? chosen : names[0];
  return (
    <>
      <h1>Nodes and vbuckets</h1>
      <Nodes round={round} />
      <div class="heading">
        <h2>vbucket map</h2>
        {bucket && <SelectField label="Bucket" value={bucket} options={names} change={setChosen} />}
      </div>
      <Failure error={asked.error} again={asked.again} />
      {asked.value?.length === 0 && <NoBucket />}
      {bucket && <Vbuckets bucket={bucket} round={round} refresh={() => setRound(round + 1)} key={bucket} />}
    </>
  );
}
