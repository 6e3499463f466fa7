// The last slow operations of the server.

import { useState } from "preact/hooks";
import { get } from "../api";
import { count, time } from "../format";
import { Table } from "../table";
import { Busy, Failure, LastKnown, TextField, useAsked } from "../ui";

interface Operation {
  unix_ms: number;
  opcode: string | string[];
  user: string;
  bucket: string;
  key?: string;
  duration_ms: number;
  fetch_ms: number;
  persist_ms: number;
  execute_us?: number;
}

interface Slow {
  thresholds_ms: Record<string, number>;
  operations: Operation[];
}

/** User data is between tags in the log. */
const untagged = (text: string) => text.replace(/<\/?ud>/g, "");

const name = (opcode: Operation["opcode"]) => (Array.isArray(opcode) ? opcode.join(", ") : opcode);

export function SlowPage() {
  const [filter, setFilter] = useState("");
  const asked = useAsked((signal) => get<Slow>("/node/slowOperations", {}, signal), []);
  const slow = asked.value;
  const text = (operation: Operation) =>
    [name(operation.opcode), operation.bucket, operation.user, operation.key ?? ""].join(" ").toLowerCase();
  const rows = slow?.operations.filter((operation) => text(operation).includes(filter.toLowerCase())) ?? [];
  const thresholds = Object.entries(slow?.thresholds_ms ?? {});
  return (
    <>
      <div class="heading">
        <h1>Slow operations</h1>
        <button type="button" onClick={asked.again}>
          Refresh
        </button>
      </div>
      <Failure error={asked.error} again={asked.again} />
      {!slow && asked.isBusy && <Busy />}
      {slow && (
        <>
          <p class="muted">
            The last 256 operations that took longer than{" "}
            {thresholds.map(([kind, ms]) => (ms === 0 ? `${kind}: off` : `${kind}: ${ms} ms`)).join(", ")}.
          </p>
          <TextField label="Filter" type="search" value={filter} change={setFilter} data-search />
          {rows.length === 0 ? (
            <p>{slow.operations.length === 0 ? "No operation was slow." : "No operation matches the filter."}</p>
          ) : (
            <LastKnown error={asked.error}>
              <Table
                caption="Slow operations"
                columns={[
                  "Time",
                  "Operation",
                  "Bucket",
                  "Key",
                  "User",
                  ["Total", "number"],
                  ["Fetch", "number"],
                  ["Persist", "number"],
                  ["Executed", "number"],
                ]}
              >
                {rows.map((operation, index) => (
                  <tr key={`${operation.unix_ms}-${index}`}>
                    <td class="nowrap">{time(operation.unix_ms)}</td>
                    <td>{name(operation.opcode)}</td>
                    <td>{operation.bucket}</td>
                    <td class="key">{untagged(operation.key ?? "")}</td>
                    <td>{untagged(operation.user)}</td>
                    <td class="number">{count(operation.duration_ms)} ms</td>
                    <td class="number">{count(operation.fetch_ms)} ms</td>
                    <td class="number">{count(operation.persist_ms)} ms</td>
                    <td class="number">
                      {operation.execute_us === undefined ? "–" : `${count(operation.execute_us)} µs`}
                    </td>
                  </tr>
                ))}
              </Table>
            </LastKnown>
          )}
        </>
      )}
    </>
  );
}
