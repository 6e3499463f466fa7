// One document: its value, attributes and metadata, and its deletion.

import { useState } from "preact/hooks";
import { ask } from "../api";
import { go } from "../app";
import { bytes, expiry } from "../format";
import { isText, keyLabel } from "../keys";
import { Busy, Confirmation, Failure, done, useAsked } from "../ui";
import { docsPath, type Place, type Rights } from "./documents";
import { FORMAT_NAMES, indented, namedFormat, readDocument, type Document } from "./stored";
import { Value } from "./value";

const NOT_FOUND = 404;

/** The format in words, where the flags name one. */
function flagsText(flags: number): string {
  const format = namedFormat(flags);
  return format === undefined ? String(flags) : `${flags} (${FORMAT_NAMES[format]})`;
}

function Metadata({ document }: { document: Document }) {
  const rows: [string, string | number | undefined][] = [
    ["Version (CAS)", document.locked ? "locked by a client" : document.cas],
    ["Content", document.datatype],
    ["Size", `${bytes(document.bytes)}${document.compressed ? ", stored compressed" : ""}`],
    ["Expires", document.expiry === undefined ? undefined : expiry(document.expiry)],
    ["Flags", flagsText(document.flags)],
    ["Revision", document.revision],
    ["Seqno", document.seqno],
    ["vbucket", document.vbucket],
  ];
  return (
    <section aria-label="Metadata">
      <h2>Metadata</h2>
      <dl class="facts">
        {rows
          .filter(([, value]) => value !== undefined)
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
    </section>
  );
}

function Attributes({ attributes }: { attributes: Document["attributes"] }) {
  const names = Object.keys(attributes);
  return (
    <section aria-label="Extended attributes">
      <h2>Extended attributes</h2>
      {names.length === 0 && <p class="muted">There are none.</p>}
      <dl class="facts">
        {names.map((name) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <pre>{attributes[name] === null ? "too long to show" : indented(attributes[name]!)}</pre>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

export function DocumentView(props: { place: Place; id: string; rights: Rights; list: string }) {
  const { place, id, rights, list } = props;
  const [isDeleting, setDeleting] = useState(false);
  const asked = useAsked((signal) => readDocument(place, id, signal), [place.bucket, place.scope, place.collection, id]);
  const document = asked.value;
  const name = keyLabel(id);
  return (
    <>
      <p>
        <a href={list}>
          ← {place.bucket}.{place.scope}.{place.collection}
        </a>
      </p>
      <div class="heading">
        <h1 class="key">
          {name} {!isText(id) && <span class="tag">not UTF-8</span>}
        </h1>
        <button type="button" onClick={asked.again}>
          Refresh
        </button>
        {rights.mayDelete && document && (
          <button type="button" class="danger" onClick={() => setDeleting(true)}>
            Delete
          </button>
        )}
      </div>
      {!document && asked.isBusy && <Busy />}
      {asked.error?.status === NOT_FOUND ? (
        <p role="alert">There is no such document. It may have expired or been deleted.</p>
      ) : (
        <Failure error={asked.error} again={asked.again} />
      )}
      {document && asked.error === undefined && (
        <div class="document">
          <Value place={place} document={document} rights={rights} again={asked.again} list={list} key={document.cas} />
          <div>
            <Metadata document={document} />
            <Attributes attributes={document.attributes} />
          </div>
        </div>
      )}
      {isDeleting && document && (
        <Confirmation
          title="Delete the document"
          what={
            <>
              This deletes the document <b class="key">{name}</b>, unless it was changed since you opened it. This
              cannot be undone.
            </>
          }
          action="Delete the document"
          act={async () => {
            await ask("DELETE", docsPath(place, id), { query: { encoding: "base64url", cas: document.cas } });
            done(`Deleted ${name}.`);
            go(list);
          }}
          close={() => setDeleting(false)}
        />
      )}
    </>
  );
}
