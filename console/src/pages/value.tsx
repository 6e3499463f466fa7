// The value of a document: shown, edited and saved.
//
// Owns: the text being edited and the version (CAS) that it was made from. A save names that version. If
// the document was changed in the time between, the server refuses, and the user sees both versions and
// decides. JSON is shown indented and stored without white space; every token stays as it is. A text
// that is no JSON is stored over JSON only after a question, and then as text. The edited text outlives a
// visit to another page. Values that are too long for the editor, or no text, are files (`files.tsx`).

import { useRef, useState } from "preact/hooks";
import type { ApiError } from "../api";
import { go } from "../app";
import { bytes, jsonError } from "../format";
import { keyLabel } from "../keys";
import { Dialog, Failure, RequestForm, TextField, asApiError, done } from "../ui";
import { docsPath, type Place, type Rights } from "./documents";
import { Editor, FormatField, NotJson } from "./editor";
import { Files } from "./files";
import {
  BEGINNING_CHARS,
  EDITABLE_BYTES_MAX,
  flagsFor,
  formatOf,
  indented,
  readDocument,
  shownText,
  write,
  type Document,
  type Format,
} from "./stored";

const CONFLICT = 409;
const NOT_FOUND = 404;

/** A text that is not saved, and the version that it was made from. */
interface Draft {
  at: string;
  cas: string;
  text: string;
  format: Format;
  life: string;
}

let draft: Draft | undefined;

export const forgetDraft = () => {
  draft = undefined;
};

addEventListener("beforeunload", (event) => draft && event.preventDefault());

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
    <Dialog title="The document has changed" close={close} wide>
      <p>
        Another client {theirs ? "saved a newer version of" : "deleted"} the document since you opened it. Nothing of
        yours was stored yet.
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

interface ValueProps {
  place: Place;
  document: Document;
  rights: Rights;
  again: () => void;
  list: string;
}

/** The text that is edited; what differs from the document is kept for the next visit. */
function useDraft({ place, document }: ValueProps) {
  const at = docsPath(place, document.id);
  const fresh = (): Draft => ({
    at,
    cas: document.cas,
    text: shownText(document),
    format: formatOf(document),
    life: "",
  });
  const isFresh = ({ text, format, life }: Draft) =>
    text === shownText(document) && format === formatOf(document) && life === "";
  const [edited, setEdited] = useState<Draft>(() => (draft?.at === at ? draft : fresh()));
  const change = (part: Partial<Pick<Draft, "text" | "format" | "life">>) => {
    const next = { ...edited, ...part };
    setEdited(next);
    draft = isFresh(next) ? undefined : next;
  };
  const revert = () => {
    forgetDraft();
    setEdited(fresh());
  };
  return { edited, change, revert, isChanged: !isFresh(edited) };
}

/** What a save has to ask before it can end. */
type Question = { what: "format" } | { what: "version"; theirs?: Document };

function useSave({ place, document, again }: ValueProps, edited: Draft) {
  const [error, setError] = useState<ApiError>();
  const [isBusy, setBusy] = useState(false);
  const [question, ask] = useState<Question>();
  const isSaving = useRef(false);
  const store = async (cas: string | undefined, format: Format) => {
    // A document that is gone is made again.
    const mode = cas === undefined ? "add" : "set";
    const query = { cas, mode, flags: flagsFor(format, document), expiry: edited.life || undefined };
    await write(place, document.id, edited.text, format, query);
    done(`Saved ${keyLabel(document.id)}.`);
    ask(undefined);
    // The next version shows what was stored.
    forgetDraft();
    again();
  };
  const refused = async (error: ApiError) => {
    if (error.status !== CONFLICT && error.status !== NOT_FOUND) return setError(error);
    await readDocument(place, document.id).then(
      (theirs) => ask({ what: "version", theirs }),
      (missing) =>
        asApiError(missing).status === NOT_FOUND ? ask({ what: "version" }) : setError(asApiError(missing)),
    );
  };
  const save = async (cas: string | undefined, format: Format) => {
    if (isSaving.current) return;
    setError(undefined);
    if (format === "json" && jsonError(edited.text) !== undefined) return ask({ what: "format" });
    isSaving.current = true;
    setBusy(true);
    await store(cas, format).catch((failure) => refused(asApiError(failure)));
    isSaving.current = false;
    setBusy(false);
  };
  return { save, error, isBusy, question, close: () => ask(undefined) };
}

function Notices({ document, edited }: { document: Document; edited: Draft }) {
  return (
    <>
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
      {formatOf(document) === "json" && edited.format !== "json" && (
        <p class="problem">The document is JSON and is stored as text. Programs that expect JSON fail to decode it.</p>
      )}
    </>
  );
}

export function Value(props: ValueProps) {
  const { place, document, rights } = props;
  const { edited, change, revert, isChanged } = useDraft(props);
  const { text, format, life } = edited;
  const { save, error, isBusy, question, close } = useSave(props, edited);
  const isWhole = document.text !== undefined && !document.truncated && !document.damaged;
  const mayEdit = rights.mayWrite && isWhole && !document.locked;
  const storeAsText = async () => {
    change({ format: "text" });
    close();
    await save(edited.cas, "text");
  };
  const take = (theirs: Document | undefined) => {
    close();
    revert();
    if (theirs) props.again();
    else go(props.list);
  };
  return (
    <section aria-label="Value">
      <h2>Value</h2>
      <Notices document={document} edited={edited} />
      {document.base64 === undefined ? (
        <Editor
          label="Value"
          text={text}
          format={format}
          change={(text) => change({ text })}
          save={() => mayEdit && isChanged && save(edited.cas, format)}
          isReadOnly={!mayEdit}
        />
      ) : (
        <>
          <p class="notice">The value is not text. This is base64.</p>
          <pre class="editor" tabIndex={0}>
            {document.base64.slice(0, BEGINNING_CHARS)}
          </pre>
        </>
      )}
      <Failure error={error} />
      {mayEdit && (
        <div class="tools top">
          <FormatField
            formats={formatOf(document) === "binary" ? ["json", "text", "binary"] : ["json", "text"]}
            value={format}
            change={(format) => change({ format })}
          />
          <TextField
            label="New expiry in seconds"
            hint="Empty keeps it, 0 removes it"
            type="number"
            min={0}
            value={life}
            change={(life) => change({ life })}
          />
          <div class="buttons">
            <button
              type="button"
              disabled={format !== "json" || jsonError(text) !== undefined}
              onClick={() => change({ text: indented(text) })}
            >
              Indent
            </button>
            <button type="button" disabled={!isChanged} onClick={revert}>
              Revert
            </button>
            <button
              type="button"
              class="primary"
              disabled={!isChanged || isBusy}
              onClick={() => save(edited.cas, format)}
            >
              {isBusy ? "Saving…" : "Save"}
            </button>
          </div>
        </div>
      )}
      <Files
        place={place}
        document={document}
        mayWrite={rights.mayWrite && !document.locked}
        replaced={() => (forgetDraft(), props.again())}
      />
      {!rights.mayWrite && <p class="hint">Your user may read this document and not change it.</p>}
      {question?.what === "format" && <NotJson text={text} store={storeAsText} close={close} />}
      {question?.what === "version" && (
        <Conflict
          mine={text}
          theirs={question.theirs}
          overwrite={
            question.theirs || rights.mayCreate ? () => save(question.theirs?.cas, format) : undefined
          }
          take={() => take(question.theirs)}
          close={close}
        />
      )}
    </section>
  );
}
