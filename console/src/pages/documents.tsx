// The documents of a collection: browse in key order, find by key or prefix, open one.
//
// Owns: the pages. The server lists some rows at a time; the way back is the list of keys where the
// pages began.

import { useState } from "preact/hooks";
import { bucketPath, get } from "../api";
import { go, link, useApp, type Route } from "../app";
import { bytes, expiry } from "../format";
import { keyId, keyLabel } from "../keys";
import { may } from "../rights";
import { Cell, Row, Table } from "../table";
import { Busy, Failure, LastKnown, NoBucket, SelectField, TextField, useAsked } from "../ui";
import { buckets, paths, scopes } from "./catalog";
import { DocumentView } from "./document";
import { NewDocument } from "./newdocument";

export interface Place {
  bucket: string;
  scope: string;
  collection: string;
}

interface Listed {
  id: string;
  key?: string;
  bytes?: number;
  expiry?: number;
  datatype?: string;
  text?: string;
  truncated?: boolean;
}

const ROWS = 50;

export const docsPath = ({ bucket, scope, collection }: Place, ...rest: string[]) =>
  bucketPath(bucket, "scopes", scope, "collections", collection, "docs", ...rest);

function Chooser({ place }: { place: Place }) {
  const all = useAsked(buckets, []);
  const asked = useAsked((signal) => scopes(place.bucket, signal), [place.bucket]);
  const names = all.value?.map(({ name }) => name) ?? [];
  const current = `${place.scope}.${place.collection}`;
  const known = asked.value ? paths(asked.value) : [];
  const withCurrent = (list: string[], one: string) => (list.includes(one) ? list : [one, ...list]);
  return (
    <>
      <SelectField
        label="Bucket"
        value={place.bucket}
        options={withCurrent(names, place.bucket)}
        change={(bucket) => go(link("documents", [bucket]))}
      />
      <SelectField
        label="Collection"
        value={current}
        options={withCurrent(known, current)}
        change={(path) => go(link("documents", [place.bucket, ...path.split(".")]))}
      />
    </>
  );
}

function Find({ place, prefix }: { place: Place; prefix: string }) {
  const [text, setText] = useState(prefix);
  const parts = [place.bucket, place.scope, place.collection];
  const find = (event: Event) => {
    event.preventDefault();
    go(link("documents", parts, { prefix: text }));
  };
  return (
    <form class="find" onSubmit={find} role="search">
      <TextField
        label="Keys that begin with"
        value={text}
        change={setText}
        type="search"
        autocomplete="off"
        spellcheck={false}
        data-search
      />
      <button type="submit">Find</button>
      <button
        type="button"
        disabled={text === ""}
        onClick={() => go(link("documents", parts, { prefix, open: keyId(text) }))}
      >
        Open this key
      </button>
    </form>
  );
}

function Rows({ rows, open }: { rows: Listed[]; open: (id: string) => string }) {
  return (
    <Table caption="Documents" columns={["Key", "Content", "Type", ["Size", "number"], "Expires"]} stacks>
      {rows.map(({ id, text, datatype, bytes: size, expiry: end }) => (
        <Row
          key={id}
          isKey
          name={
            <a class="clipped" href={open(id)} title={keyLabel(id)}>
              {keyLabel(id)}
            </a>
          }
        >
          <Cell kind="preview">{text ?? "–"}</Cell>
          <Cell label="Type">{datatype ?? "–"}</Cell>
          <Cell label="Size" kind="number">
            {size === undefined ? "–" : bytes(size)}
          </Cell>
          <Cell label="Expires" kind="nowrap">
            {end === undefined ? "–" : expiry(end)}
          </Cell>
        </Row>
      ))}
    </Table>
  );
}

function List({ place, route, rights }: { place: Place; route: Route; rights: Rights }) {
  const prefix = route.query.get("prefix") ?? "";
  // Keys after which the pages begin, the current one last.
  const starts = (route.query.get("after") ?? "").split(",").filter(Boolean);
  const after = starts.at(-1);
  const [isNew, setNew] = useState(false);
  const asked = useAsked(
    (signal) =>
      get<{ documents: Listed[]; next: string | null }>(
        docsPath(place),
        { limit: ROWS, prefix: prefix ? keyId(prefix) : undefined, after },
        signal,
      ),
    [place.bucket, place.scope, place.collection, prefix, after],
  );
  const parts = [place.bucket, place.scope, place.collection];
  const at = (starts: string[]) => link("documents", parts, { prefix, after: starts.join(",") });
  const open = (id: string) => link("documents", parts, { prefix, after: starts.join(","), open: id });
  const page = asked.value;
  return (
    <>
      <div class="tools">
        <Find place={place} prefix={prefix} key={prefix} />
        <button type="button" onClick={asked.again}>
          Refresh
        </button>
        {rights.mayCreate && asked.error?.status !== 404 && (
          <button type="button" class="primary" onClick={() => setNew(true)}>
            New document
          </button>
        )}
      </div>
      <Failure error={asked.error} again={asked.again} />
      {asked.isBusy && !page && <Busy text="Reading keys…" />}
      {page && page.documents.length === 0 && (
        <p class="muted">{prefix ? "No key begins with this." : "The collection has no documents."}</p>
      )}
      {page && page.documents.length > 0 && (
        <LastKnown error={asked.error}>
          <Rows rows={page.documents} open={open} />
        </LastKnown>
      )}
      <div class="buttons start" aria-live="polite">
        <button type="button" disabled={starts.length === 0} onClick={() => go(at(starts.slice(0, -1)))}>
          Previous page
        </button>
        <button
          type="button"
          disabled={!page?.next || asked.isBusy}
          onClick={() => page?.next && go(at([...starts, page.next]))}
        >
          Next page
        </button>
        <span class="muted">
          Page {starts.length + 1}
          {asked.isBusy ? ", loading…" : ""}
        </span>
      </div>
      {isNew && (
        <NewDocument
          place={place}
          close={() => setNew(false)}
          created={(id) => {
            setNew(false);
            go(open(id));
          }}
        />
      )}
    </>
  );
}

export interface Rights {
  mayCreate: boolean;
  mayWrite: boolean;
  mayDelete: boolean;
}

function Collection({ place, route }: { place: Place; route: Route }) {
  const { user } = useApp();
  const has = (right: string) => may(user, right, place.bucket, place.scope, place.collection);
  const rights = {
    mayCreate: has("insert"),
    mayWrite: has("upsert"),
    mayDelete: has("delete"),
  };
  const opened = route.query.get("open");
  const rest = { prefix: route.query.get("prefix") ?? "", after: route.query.get("after") ?? "" };
  const list = link("documents", [place.bucket, place.scope, place.collection], rest);
  if (opened) return <DocumentView place={place} id={opened} rights={rights} list={list} key={opened} />;
  return (
    <>
      <h1>Documents</h1>
      <div class="tools">
        <Chooser place={place} />
      </div>
      <List place={place} route={route} rights={rights} key={`${place.bucket}/${place.scope}/${place.collection}`} />
    </>
  );
}

/** The place that the address names; what it leaves out is the first that the user sees. */
async function placeOf(parts: string[], signal: AbortSignal): Promise<Place | undefined> {
  const bucket = parts[0] ?? (await buckets(signal))[0]?.name;
  if (bucket === undefined) return undefined;
  const [, scope, collection] = parts;
  if (scope !== undefined && collection !== undefined) return { bucket, scope, collection };
  const seen = paths(await scopes(bucket, signal));
  const path = seen.includes("_default._default") ? undefined : seen[0];
  const [inScope, named] = path?.split(".") ?? [];
  return { bucket, scope: inScope ?? "_default", collection: named ?? "_default" };
}

export function DocumentsPage({ route }: { route: Route }) {
  const asked = useAsked((signal) => placeOf(route.parts, signal), [route.parts.join("/")]);
  // A page whose address names its place shows at once.
  const [bucket, scope, collection] = route.parts;
  const named = bucket && scope && collection ? { bucket, scope, collection } : undefined;
  const place = named ?? asked.value;
  if (place && (named || !(asked.isBusy || asked.error))) return <Collection place={place} route={route} />;
  return (
    <>
      <h1>Documents</h1>
      <Failure error={asked.error} again={asked.again} />
      {asked.isBusy ? <Busy /> : !asked.error && <NoBucket />}
    </>
  );
}
