// Copies of vbuckets on the nodes of a cluster: those missing or not served, failover and rebalance.

import { useState } from "preact/hooks";
import { ask, get } from "../api";
import { useApp } from "../app";
import { count } from "../format";
import { isAdmin } from "../rights";
import { Table } from "../table";
import { Confirmation, Failure, LastKnown, done, failed, useAsked, useTicks } from "../ui";

interface Member {
  name: string;
  state: string;
  membership: string;
  active: number;
  replicas: number;
}

interface Trouble {
  reason: string;
  vbuckets: number;
}

interface Copies {
  name: string;
  replicas: number;
  vbuckets: number;
  served: number;
  missing: number;
  behind: number;
  troubles: Trouble[];
}

interface Cluster {
  leader: string | null;
  nodes: Member[];
  buckets: Copies[];
  failover: string | null;
  balanced: boolean;
  rebalance: { state: string; total: number; left: number; waits_for: string | null } | null;
}

const LOOK_MS = 2000;
const PARTS: Record<string, string> = { inactiveAdded: "gets no copies", inactiveFailed: "failed over" };

/** One sentence on the rebalance. */
function progressOf({ rebalance, balanced }: Cluster): string {
  if (rebalance?.state === "running") {
    const waits = rebalance.waits_for ? ` It waits for ${rebalance.waits_for}.` : "";
    return `A rebalance runs: ${count(rebalance.left)} of ${count(rebalance.total)} moves are left.${waits}`;
  }
  return balanced ? "Every node has its share of the copies." : "Some nodes have more than their share of the copies.";
}

export function ClusterSection({ round }: { round: number }) {
  const { user } = useApp();
  const asked = useAsked((signal) => get<Cluster>("/node/cluster", {}, signal), [round]);
  const [failing, setFailing] = useState<string>();
  useTicks(async () => {
    asked.again();
    return LOOK_MS;
  });
  const cluster = asked.value;
  const isRunning = cluster?.rebalance?.state === "running";
  const change = async () => {
    const all = cluster?.nodes.map(({ name }) => name).join(",") ?? "";
    try {
      if (isRunning) await ask("POST", "/controller/stopRebalance");
      else await ask("POST", "/controller/rebalance", { form: { knownNodes: all } });
      done(isRunning ? "The rebalance is stopped." : "A rebalance has begun.");
    } catch (error) {
      failed(error);
    }
    asked.again();
  };
  const failOver = async (name: string) => {
    await ask("POST", "/controller/failOver", { form: { otpNode: name } });
    done(`Other nodes have the active copies of ${name}.`);
    asked.again();
  };
  if (!cluster) return <Failure error={asked.error} again={asked.again} />;
  return (
    <section>
      <div class="heading">
        <h2>Copies</h2>
        {isAdmin(user) && (
          <button type="button" onClick={change}>
            {isRunning ? "Stop the rebalance" : "Rebalance"}
          </button>
        )}
      </div>
      <p>
        {progressOf(cluster)}
        {cluster.failover && ` Node ${cluster.failover} is being failed over.`}
      </p>
      <LastKnown error={asked.error}>
        <Table caption="Copies by node" columns={["Node", "State", ["Active", "number"], ["Replicas", "number"], ""]}>
          {cluster.nodes.map(({ name, state, membership, active, replicas }) => (
            <tr key={name}>
              <th scope="row">
                {name}
                {name === cluster.leader && " (leads)"}
              </th>
              <td>
                {state}
                {PARTS[membership] && `, ${PARTS[membership]}`}
              </td>
              <td class="number">{count(active)}</td>
              <td class="number">{count(replicas)}</td>
              <td class="actions">
                {isAdmin(user) && active > 0 && (
                  <button type="button" class="danger" onClick={() => setFailing(name)}>
                    Fail over
                  </button>
                )}
              </td>
            </tr>
          ))}
        </Table>
        {cluster.buckets.length > 0 && (
          <Table
            caption="Copies by bucket"
            columns={["Bucket", ["vbuckets", "number"], ["Served", "number"], ["Copies missing", "number"], ["Copies behind", "number"]]}
          >
            {cluster.buckets.map((bucket) => (
              <tr key={bucket.name}>
                <th scope="row">{bucket.name}</th>
                <td class="number">{count(bucket.vbuckets)}</td>
                <td class="number">{count(bucket.served)}</td>
                <td class="number">{count(bucket.missing)}</td>
                <td class="number">{count(bucket.behind)}</td>
              </tr>
            ))}
          </Table>
        )}
        <ul>
          {cluster.buckets.flatMap(({ name, troubles }) =>
            troubles.map(({ reason, vbuckets }) => (
              <li key={`${name} ${reason}`}>
                {name}, {count(vbuckets)} vbuckets: {reason}
              </li>
            )),
          )}
        </ul>
      </LastKnown>
      {failing && (
        <Confirmation
          title={`Fail ${failing} over`}
          what="Other copies of its vbuckets become active. Plain writes that they lack are lost."
          action="Fail over"
          act={() => failOver(failing)}
          close={() => setFailing(undefined)}
        />
      )}
    </section>
  );
}
