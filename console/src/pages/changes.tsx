// Changes of documents as they happen.
//
// Owns: the stream while the page is open. It keeps the newest rows only, and draws at most a few
// times a second, however fast changes come. Hidden or paused, it continues to read and drops.

import { useEffect, useRef, useState } from "preact/hooks";
import { bucketPath, encoded, errorOf, send, type ApiError } from "../api";
import { link, useApp } from "../app";
import { count } from "../format";
import { keyId, keyLabel } from "../keys";
import { lines } from "../lines";
import { may } from "../rights";
import { Cell, Row, Table } from "../table";
import { Failure, NoBucket, SelectField, TextField, asApiError, useAsked } from "../ui";
import { buckets, paths, scopes } from "./catalog";

interface Change {
  type: string;
  vbucket?: number;
  seqno?: number;
  scope?: string;
  collection?: string;
  key?: string;
  key_base64?: string;
  value?: unknown;
  value_base64?: string;
  reason?: string;
}

interface ChangeRow extends Change {
  number: number;
  at: string;
}

const ROWS_MAX = 200;
const DRAW_MS = 250;
const VALUE_CHARS = 160;
const VBUCKETS_MAX = 256;

/** The events of a stream, until it ends. */
async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<Change> {
  for await (const line of lines(body)) {
    if (line.startsWith("data: ")) yield JSON.parse(line.slice(6)) as Change;
  }
}

interface Feed {
  rows: ChangeRow[];
  total: number;
  state: "connecting" | "live" | "ended";
  ended?: string;
  error?: ApiError;
}

const EMPTY: Feed = { rows: [], total: 0, state: "connecting" };

/** The key in the form of addresses: base64url without padding. */
const idOf = ({ key, key_base64: encoded = "" }: Change) =>
  key === undefined ? encoded.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "") : keyId(key);

/** The key as it is shown. */
const keyOf = (change: Change) => keyLabel(idOf(change));

interface Wanted {
  collection: string;
  withValues: boolean;
  isPaused: boolean;
  /** A part of the keys to show. */
  filter: string;
}

function useFeed(bucket: string, wanted: Wanted, turn: number): Feed {
  const { collection, withValues } = wanted;
  const [feed, setFeed] = useState<Feed>(EMPTY);
  const now = useRef(wanted);
  now.current = wanted;
  useEffect(() => {
    const abort = new AbortController();
    let rows: ChangeRow[] = [];
    let total = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    setFeed(EMPTY);
    const draw = () => {
      timer = undefined;
      setFeed((feed) => ({ ...feed, total, rows: now.current.isPaused ? feed.rows : rows }));
    };
    const query = {
      "sparse-ids": "",
      "with-values": withValues ? "" : undefined,
      collection: collection || undefined,
    };
    const target = `${bucketPath(bucket, "changes")}?${encoded(query)}`;
    const follow = async () => {
      const response = await send("GET", target, { signal: abort.signal });
      if (!response.ok || !response.body) throw await errorOf(response);
      setFeed((feed) => ({ ...feed, state: "live" }));
      for await (const change of events(response.body)) {
        if (change.type === "end") return change.reason ?? "ended";
        total += 1;
        if (!now.current.isPaused && keyOf(change).includes(now.current.filter)) {
          rows = [{ ...change, number: total, at: new Date().toLocaleTimeString("sv-SE") }, ...rows].slice(0, ROWS_MAX);
        }
        timer ??= setTimeout(draw, DRAW_MS);
      }
      return "the connection is closed";
    };
    follow().then(
      (ended) => setFeed((feed) => ({ ...feed, rows, total, state: "ended", ended })),
      (error) =>
        abort.signal.aborted || setFeed((feed) => ({ ...feed, state: "ended", error: asApiError(error) })),
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [bucket, collection, withValues, turn]);
  return feed;
}

function valueText(change: Change): string {
  if (change.value_base64 !== undefined) return `base64 ${change.value_base64.slice(0, VALUE_CHARS)}`;
  if (change.value === undefined) return "";
  return JSON.stringify(change.value).slice(0, VALUE_CHARS);
}

function KeyLink({ bucket, row }: { bucket: string; row: Change }) {
  const { scope, collection } = row;
  if (!scope || !collection) return <>{keyOf(row)}</>;
  return (
    <a class="clipped" href={link("documents", [bucket, scope, collection], { open: idOf(row) })}>
      {keyOf(row)}
    </a>
  );
}

function Rows({ bucket, rows }: { bucket: string; rows: ChangeRow[] }) {
  return (
    <Table
      caption="Changes, newest first"
      columns={["Key", "Change", "Time", "Collection", "Value", ["vbucket", "number"], ["Seqno", "number"]]}
      stacks
    >
      {rows.map((row) => (
        <Row key={row.number} isKey name={<KeyLink bucket={bucket} row={row} />}>
          <Cell>
            <span class={`tag ${row.type}`}>{row.type}</span>
          </Cell>
          <Cell kind="nowrap">{row.at}</Cell>
          <Cell kind="key">{row.collection && `${row.scope}.${row.collection}`}</Cell>
          <Cell kind="preview">{valueText(row)}</Cell>
          <Cell label="vbucket" kind="number">
            {row.vbucket}
          </Cell>
          <Cell label="Seqno" kind="number">
            {row.seqno}
          </Cell>
        </Row>
      ))}
    </Table>
  );
}

function Stream({ bucket }: { bucket: string }) {
  const [collection, setCollection] = useState("");
  const [withValues, setWithValues] = useState(true);
  const [isPaused, setPaused] = useState(false);
  const [turn, setTurn] = useState(0);
  const [filter, setFilter] = useState("");
  const feed = useFeed(bucket, { collection, withValues, isPaused, filter }, turn);
  const rows = feed.rows.filter((row) => keyOf(row).includes(filter));
  const known = useAsked((signal) => scopes(bucket, signal), [bucket]);
  const states = { connecting: "Connecting…", live: "Live", ended: `Ended: ${feed.ended ?? "see below"}` };
  return (
    <>
      <div class="tools">
        <SelectField
          label="Collection"
          value={collection}
          options={[["", "All"], ...(known.value ? paths(known.value) : [])]}
          change={setCollection}
        />
        <TextField
          label="Keys that contain"
          type="search"
          value={filter}
          change={setFilter}
          autocomplete="off"
          spellcheck={false}
          data-search
        />
        <label class="check">
          <input
            type="checkbox"
            checked={withValues}
            onChange={(event) => setWithValues((event.target as HTMLInputElement).checked)}
          />
          Values
        </label>
        <button type="button" aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>
          {isPaused ? "Resume" : "Pause"}
        </button>
        {feed.state === "ended" && (
          <button type="button" class="primary" onClick={() => setTurn(turn + 1)}>
            Connect again
          </button>
        )}
      </div>
      <p role="status">
        {isPaused ? "Paused" : states[feed.state]}, {count(feed.total)} changes so far; the newest {ROWS_MAX}
        {filter && " with such a key"} are shown.
      </p>
      <Failure error={feed.error} />
      {rows.length > 0 ? (
        <Rows bucket={bucket} rows={rows} />
      ) : (
        <p class="muted">Changes appear here as clients write.</p>
      )}
    </>
  );
}

export function ChangesPage() {
  const { user } = useApp();
  const asked = useAsked(buckets, []);
  const [chosen, setChosen] = useState("");
  const usable = asked.value?.filter(({ name }) => may(user, "change-streams", name)) ?? [];
  const bucket = usable.find(({ name }) => name === chosen) ?? usable[0];
  return (
    <>
      <div class="heading">
        <h1>Live changes</h1>
        {bucket && (
          <SelectField label="Bucket" value={bucket.name} options={usable.map(({ name }) => name)} change={setChosen} />
        )}
      </div>
      <Failure error={asked.error} again={asked.again} />
      {asked.value?.length === 0 && <NoBucket />}
      {asked.value && asked.value.length > 0 && !bucket && <p>Your user has no right to follow the changes of a bucket (change-streams).</p>}
      {bucket && bucket.numVBuckets > VBUCKETS_MAX ? (
        <p>This bucket has more than {VBUCKETS_MAX} vbuckets. Use <code>oribi watch</code> to follow it.</p>
      ) : (
        bucket && <Stream bucket={bucket.name} key={bucket.name} />
      )}
    </>
  );
}
