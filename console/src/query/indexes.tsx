// A dialog with the indexes that the user may see, as they are now.

import { useState } from "preact/hooks";
import type { ApiError } from "../api";
import { bytes, count } from "../format";
import { Cell, Row, Table } from "../table";
import { Busy, Dialog, Failure, LastKnown, asApiError, useTicks } from "../ui";
import { rowsOf } from "./answer";

interface KeyspaceIndex {
  name: string;
  /** Bucket and scope are missing for a bucket's default collection. */
  bucket_id?: string;
  scope_id?: string;
  keyspace_id: string;
  state: string;
  index_key: string[];
  /** Such an index is a scan. */
  is_primary?: boolean;
  condition?: string;
  entries?: number;
  bytes?: number;
  progress?: number;
  reason?: string;
}

const INDEXES =
  "SELECT i.name, i.bucket_id, i.scope_id, i.keyspace_id, i.state, i.index_key, i.is_primary, i.`condition`, " +
  "i.metadata.entries, i.metadata.bytes, i.metadata.progress, i.metadata.reason " +
  "FROM system:indexes AS i ORDER BY i.bucket_id, i.scope_id, i.keyspace_id, i.name";

const EVERY_MS = 2000;

const pathOf = ({ bucket_id, scope_id, keyspace_id }: KeyspaceIndex) =>
  [bucket_id, scope_id, keyspace_id].filter((part) => part !== undefined).join(".");

const definition = ({ index_key, is_primary, condition }: KeyspaceIndex) =>
  (is_primary ? "primary" : index_key.join(", ")) + (condition ? ` WHERE ${condition}` : "");

export function IndexesDialog({ close }: { close: () => void }) {
  const [all, setAll] = useState<KeyspaceIndex[]>();
  const [error, setError] = useState<ApiError>();
  useTicks(async () => {
    try {
      setAll(await rowsOf<KeyspaceIndex>(INDEXES));
      setError(undefined);
    } catch (failure) {
      setError(asApiError(failure));
    }
    return EVERY_MS;
  });
  const text = (value: number | undefined, show: (value: number) => string) => (value === undefined ? "" : show(value));
  return (
    <Dialog title="Indexes" close={close} wide>
      <Failure error={error} />
      {!all && !error && <Busy />}
      {all?.length === 0 && (
        <p>
          There is no index. <code>CREATE INDEX</code> makes one; statements scan without.
        </p>
      )}
      {all && all.length > 0 && (
        <LastKnown error={error}>
          <Table
            caption="Indexes"
            columns={["Name", "Keyspace", "Keys", "State", ["Entries", "number"], ["Memory", "number"], ["Progress", "number"]]}
            stacks
          >
            {all.map((index) => (
              <Row name={index.name} key={`${pathOf(index)} ${index.name}`}>
                <Cell label="Keyspace">{pathOf(index)}</Cell>
                <Cell label="Keys">
                  <code>{definition(index)}</code>
                </Cell>
                <Cell label="State">
                  {index.state}
                  {index.reason && <div class="muted">{index.reason}</div>}
                </Cell>
                <Cell label="Entries" kind="number">
                  {text(index.entries, count)}
                </Cell>
                <Cell label="Memory" kind="number">
                  {text(index.bytes, bytes)}
                </Cell>
                <Cell label="Progress" kind="number">
                  {text(index.progress, (value) => `${value} %`)}
                </Cell>
              </Row>
            ))}
          </Table>
        </LastKnown>
      )}
    </Dialog>
  );
}
