// One document: its value, attributes and metadata; editing, creating and deleting it.
//
// Owns: the text being edited and the version (CAS) that it was made from. A save names that
// version. If the document was changed meanwhile, the server refuses, and the user sees the other
// version beside their own and decides. JSON is shown indented and stored without white space; every
// token stays as it is. The text outlives a visit to another page. Values that are too long for the
// editor, or no text, are files: downloaded, and replaced by an upload.

import { useRef, useState } from "preact/hooks";
import { ApiError, ask, errorOf, get, keyId, keyText, send, utf8 } from "../api";
import { go } from "../app";
import { bytes, expiry, jsonError, respaced } from "../format";
import {
  Busy,
  Dialog,
  Failure,
  RequestForm,
  TextField,
  TypedConfirmation,
  asApiError,
  done,
  failed,
  useAsked,
} from "../ui";
import { docsPath, type Place, type Rights } from "./documents";

interface Document {
  id: string;
  key?: string;
  cas: string;
  locked: boolean;
  flags: number;
  bytes: number;
  compressed: boolean;
  damaged: boolean;
  vbucket: number;
  datatype: "json" | "text" | "binary";
  truncated: boolean;
  text?: string;
  base64?: string;
  attributes: Record<string, string | null>;
  expiry?: number;
  revision?: string;
  seqno?: string;
}

const CONFLICT = 409;
const NOT_FOUND = 404;
const INDENT = 2;
/** The longest value of the editor. */
const EDITABLE_BYTES_MAX = 2 ** 20;
/** What is shown of a longer one. */
const BEGINNING_CHARS = 2 ** 16;
const VALUE_BYTES_MAX = 20 * 2 ** 20;

/** A text that is not saved, and the version that it was made from. */
interface Draft {
  at: string;
  cas: string;
  text: string;
  life: string;
}

let draft: Draft | undefined;

export const forgetDraft = () => {
  draft = undefined;
};

addEventListener("beforeunload", (event) => draft && event.preventDefault());

const readDocument = (place: Place, id: string, signal?: AbortSignal) =>
  get<Document>(docsPath(place, id), { encoding: "base64url", bytes: EDITABLE_BYTES_MAX }, signal);

function shownText({ datatype, text = "", truncated }: Document): string {
  if (truncated) return text.slice(0, BEGINNING_CHARS);
  return datatype === "json" ? respaced(text, INDENT) : text;
}

interface Written {
  cas: string;
}

function write(place: Place, id: string, text: string, query: Record<string, string | number | undefined>) {
  const value = jsonError(text) === undefined ? respaced(text, 0) : text;
  return ask<Written>("PUT", docsPath(place, id), {
    query: { encoding: "base64url", ...query },
    body: utf8(value) as Uint8Array<ArrayBuffer>,
  });
}

function Metadata({ document }: { document: Document }) {
  const rows: [string, string | number | undefined][] = [
    ["Version (CAS)", document.locked ? "locked by a client" : document.cas],
    ["Type", document.datatype],
    ["Size", `${bytes(document.bytes)}${document.compressed ? ", stored compressed" : ""}`],
    ["Expires", document.expiry === undefined ? undefined : expiry(document.expiry)],
    ["Flags", document.flags],
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
              <pre>{attributes[name] === null ? "too long to show" : respaced(attributes[name]!, INDENT)}</pre>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

/** A text with its own check and the key that saves. */
function Editor(props: { label: string; text: string; change: (text: string) => void; save: () => void; isReadOnly?: boolean }) {
  const { text } = props;
  const problem = text === "" ? undefined : jsonError(text);
  const press = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      props.save();
    }
  };
  return (
    <>
      <textarea
        class="editor"
        aria-label={props.label}
        spellcheck={false}
        autocomplete="off"
        readOnly={props.isReadOnly}
        rows={Math.min(32, Math.max(10, text.split("\n").length + 1))}
        value={text}
        onInput={(event) => props.change((event.target as HTMLTextAreaElement).value)}
        onKeyDown={press}
      />
      {!props.isReadOnly && (
        <p class="hint" role="status">
          {problem === undefined ? "JSON" : `No JSON, will be stored as text: ${problem}`}
        </p>
      )}
    </>
  );
}

interface ConflictProps {
  mine: string;
  theirs: Document | undefined;
  /** Left out when the user may not do it. */
  overwrite?: () => Promise<unknown>;
  take: () => void;
  close: () => void;
}

function Conflict({ mine, theirs, overwrite, take, close }: ConflictProps) {
  const other = (
    <button type="button" onClick={take}>
      {theirs ? "Take the server's version" : "Discard mine"}
    </button>
  );
  return (
    <Dialog title="The document was changed meanwhile" close={close} wide>
      <p>
        {theirs
          ? "Another client saved a newer version since you opened it. Nothing of yours was stored yet."
          : "Another client deleted the document since you opened it. Nothing of yours was stored yet."}
      </p>
      <div class="compare">
        <section>
          <h3>Yours</h3>
          <pre tabIndex={0}>{mine}</pre>
        </section>
        <section>
          <h3>On the server</h3>
          <pre tabIndex={0}>{theirs ? shownText(theirs) : "deleted"}</pre>
        </section>
      </div>
      {overwrite ? (
        <RequestForm
          danger
          text={theirs ? "Overwrite it with mine" : "Create it again"}
          submit={overwrite}
          cancel={close}
          other={other}
        />
      ) : (
        <div class="buttons">{other}</div>
      )}
    </Dialog>
  );
}

/** Saves the value as a file of the user's machine. */
async function download(place: Place, source: Document) {
  const response = await send("GET", docsPath(place, source.id), { query: { encoding: "base64url", raw: 1 } });
  if (!response.ok) throw await errorOf(response);
  const url = URL.createObjectURL(await response.blob());
  const name = (source.key ?? source.id).replace(/[^\p{L}\p{N}._-]+/gu, "_").slice(0, 100);
  const ending = source.datatype === "json" ? ".json" : source.datatype === "text" ? ".txt" : ".bin";
  Object.assign(document.createElement("a"), { href: url, download: name + ending }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** The whole value as a file, in both directions. */
function Files(props: { place: Place; document: Document; mayWrite: boolean; again: () => void }) {
  const { place, document } = props;
  const input = useRef<HTMLInputElement>(null);
  const [file, setFile] = useState<File>();
  const [isBusy, setBusy] = useState(false);
  const name = document.key ?? document.id;
  const load = async () => {
    setBusy(true);
    await download(place, document).catch(failed);
    setBusy(false);
  };
  const choose = () => {
    const chosen = input.current?.files?.[0];
    if (!chosen) return;
    input.current!.value = "";
    if (chosen.size > VALUE_BYTES_MAX) failed(new Error(`A value has at most ${bytes(VALUE_BYTES_MAX)}.`));
    else setFile(chosen);
  };
  const replace = async (chosen: File) => {
    await ask("PUT", docsPath(place, document.id), {
      query: { encoding: "base64url", cas: document.cas, flags: document.flags },
      body: new Uint8Array(await chosen.arrayBuffer()),
    });
    done(`Replaced the value of ${name}.`);
    forgetDraft();
    setFile(undefined);
    props.again();
  };
  return (
    <div class="buttons start">
      <button type="button" disabled={isBusy || document.damaged} onClick={load}>
        {isBusy ? "Downloading…" : "Download"}
      </button>
      {props.mayWrite && (
        <>
          <button type="button" onClick={() => input.current?.click()}>
            Replace by a file…
          </button>
          <input ref={input} type="file" hidden aria-label="File with the new value" onChange={choose} />
        </>
      )}
      {file && (
        <Dialog title="Replace the value" close={() => setFile(undefined)}>
          <RequestForm
            danger
            text="Replace the value"
            busyText="Uploading…"
            cancel={() => setFile(undefined)}
            submit={() => replace(file)}
          >
            <p>
              The file {file.name} ({bytes(file.size)}) replaces the value of {name} ({bytes(document.bytes)}), unless
              the document was changed since you opened it.
            </p>
          </RequestForm>
        </Dialog>
      )}
    </div>
  );
}

function Value(props: { place: Place; document: Document; rights: Rights; again: () => void; list: string }) {
  const { place, document } = props;
  const original = shownText(document);
  const at = docsPath(place, document.id);
  const [edited, setEdited] = useState<Draft>(() =>
    draft?.at === at ? draft : { at, cas: document.cas, text: original, life: "" },
  );
  const { text, life } = edited;
  const change = (part: { text?: string; life?: string }) => {
    const next = { ...edited, ...part };
    setEdited(next);
    draft = next.text === original && next.life === "" ? undefined : next;
  };
  const revert = () => {
    forgetDraft();
    setEdited({ at, cas: document.cas, text: original, life: "" });
  };
  const [error, setError] = useState<ApiError>();
  const [isBusy, setBusy] = useState(false);
  const [conflict, setConflict] = useState<{ theirs?: Document }>();
  const isSaving = useRef(false);
  const isWhole = document.text !== undefined && !document.truncated && !document.damaged;
  const isChanged = text !== original || life !== "";
  const save = async (cas: string | undefined) => {
    if (isSaving.current) return;
    isSaving.current = true;
    setBusy(true);
    setError(undefined);
    try {
      // A document that is gone is made again.
      const mode = cas === undefined ? "add" : "set";
      await write(place, document.id, text, { cas, mode, flags: document.flags, expiry: life || undefined });
      done(`Saved ${document.key ?? document.id}.`);
      setConflict(undefined);
      // The next version shows what was stored.
      forgetDraft();
      props.again();
    } catch (failure) {
      const refused = asApiError(failure);
      if (refused.status === CONFLICT || refused.status === NOT_FOUND) {
        await readDocument(place, document.id).then(
          (theirs) => setConflict({ theirs }),
          (missing) => (asApiError(missing).status === NOT_FOUND ? setConflict({}) : setError(asApiError(missing))),
        );
      } else setError(refused);
    }
    isSaving.current = false;
    setBusy(false);
  };
  const mayEdit = props.rights.mayWrite && isWhole && !document.locked;
  return (
    <section aria-label="Value">
      <h2>Value</h2>
      {document.damaged && <p class="failure">The stored value is damaged and cannot be shown.</p>}
      {document.truncated && (
        <p class="notice">
          The value has {bytes(document.bytes)}; its beginning is shown. Values of more than {bytes(EDITABLE_BYTES_MAX)}{" "}
          cannot be edited here: download them, and replace them by a file.
        </p>
      )}
      {edited.cas !== document.cas && (
        <p class="notice">
          This is your unsaved text, made from an older version. Saving it shows both versions; Revert shows the one on
          the server.
        </p>
      )}
      {document.base64 !== undefined ? (
        <>
          <p class="notice">The value is no text. This is base64.</p>
          <pre class="editor" tabIndex={0}>
            {document.base64.slice(0, BEGINNING_CHARS)}
          </pre>
        </>
      ) : (
        <Editor
          label="Value"
          text={text}
          change={(text) => change({ text })}
          save={() => mayEdit && isChanged && save(edited.cas)}
          isReadOnly={!mayEdit}
        />
      )}
      <Failure error={error} />
      {mayEdit && (
        <div class="tools">
          <TextField
            label="New expiry in seconds"
            hint="Empty keeps it, 0 removes it"
            type="number"
            min={0}
            value={life}
            change={(life) => change({ life })}
          />
          <button
            type="button"
            disabled={jsonError(text) !== undefined}
            onClick={() => change({ text: respaced(text, INDENT) })}
          >
            Indent
          </button>
          <button type="button" disabled={!isChanged} onClick={revert}>
            Revert
          </button>
          <button type="button" class="primary" disabled={!isChanged || isBusy} onClick={() => save(edited.cas)}>
            {isBusy ? "Saving…" : "Save"}
          </button>
        </div>
      )}
      <Files place={place} document={document} mayWrite={props.rights.mayWrite && !document.locked} again={props.again} />
      {!props.rights.mayWrite && <p class="hint">Your user may read this document and not change it.</p>}
      {conflict && (
        <Conflict
          mine={text}
          theirs={conflict.theirs}
          overwrite={conflict.theirs || props.rights.mayCreate ? () => save(conflict.theirs?.cas) : undefined}
          take={() => {
            setConflict(undefined);
            revert();
            if (conflict.theirs) props.again();
            else go(props.list);
          }}
          close={() => setConflict(undefined)}
        />
      )}
    </section>
  );
}

export function DocumentView(props: { place: Place; id: string; rights: Rights; list: string }) {
  const { place, id, rights, list } = props;
  const [isDeleting, setDeleting] = useState(false);
  const asked = useAsked((signal) => readDocument(place, id, signal), [place.bucket, place.scope, place.collection, id]);
  const document = asked.value;
  const name = keyText(id) ?? id;
  return (
    <>
      <p>
        <a href={list}>
          ← {place.bucket}.{place.scope}.{place.collection}
        </a>
      </p>
      <div class="heading">
        <h1 class="key">{name}</h1>
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
        <TypedConfirmation
          title="Delete the document"
          what={`This deletes the document ${name}, unless it was changed since you opened it.`}
          name={name}
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

export function NewDocument(props: { place: Place; close: () => void; created: (id: string) => void }) {
  const [key, setKey] = useState("");
  const [text, setText] = useState("{\n}");
  const [life, setLife] = useState("");
  const submit = async () => {
    const id = keyId(key);
    await write(props.place, id, text, { mode: "add", expiry: life || undefined });
    done(`Created ${key}.`);
    props.created(id);
  };
  return (
    <Dialog title="New document" close={props.close} wide>
      <RequestForm text="Create" cancel={props.close} submit={submit} disabled={key === ""}>
        <TextField label="Key" value={key} change={setKey} required autocomplete="off" spellcheck={false} />
        <Editor label="Value" text={text} change={setText} save={() => {}} />
        <TextField
          label="Expires in seconds"
          hint="Empty for never; more than 30 days as a UNIX time"
          type="number"
          min={0}
          value={life}
          change={setLife}
        />
      </RequestForm>
    </Dialog>
  );
}
