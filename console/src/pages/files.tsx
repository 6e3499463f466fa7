// The whole value of a document as a file, in both directions.

import { useRef, useState } from "preact/hooks";
import { ask, errorOf, send } from "../api";
import { bytes } from "../format";
import { keyLabel } from "../keys";
import { save } from "../save";
import { Dialog, RequestForm, done, failed } from "../ui";
import { docsPath, type Place } from "./documents";
import { FORMAT_NAMES, flagsFor, formatOf, formatOfFile, looksOf, type Document, type Format } from "./stored";

const VALUE_BYTES_MAX = 20 * 2 ** 20;
const FILE_ENDINGS: Record<Format, string> = { json: ".json", text: ".txt", binary: ".bin" };

/** Saves the value as a file of the user's machine. */
async function download(place: Place, source: Document) {
  const response = await send("GET", docsPath(place, source.id), { query: { encoding: "base64url", raw: 1 } });
  if (!response.ok) throw await errorOf(response);
  const name = keyLabel(source.id).replace(/[^\p{L}\p{N}._-]+/gu, "_").slice(0, 100);
  save(name + FILE_ENDINGS[source.datatype], await response.blob());
}

interface Upload {
  name: string;
  content: Uint8Array<ArrayBuffer>;
  format: Format;
}

function Replacement(props: { document: Document; upload: Upload; replace: () => Promise<void>; close: () => void }) {
  const { document, upload } = props;
  const before = formatOf(document);
  return (
    <Dialog title="Replace the value" close={props.close}>
      <RequestForm danger text="Replace the value" busyText="Uploading…" cancel={props.close} submit={props.replace}>
        <p>
          The file {upload.name} ({bytes(upload.content.length)}) replaces the value of {keyLabel(document.id)} (
          {bytes(document.bytes)}), unless the document was changed since you opened it.
        </p>
        {upload.format !== before && (
          <p class="problem">
            The document is {FORMAT_NAMES[before]} and becomes {FORMAT_NAMES[upload.format]}, with the flags of that.
            Programs that expect {FORMAT_NAMES[before]} may fail to decode it.
          </p>
        )}
      </RequestForm>
    </Dialog>
  );
}

export function Files(props: { place: Place; document: Document; mayWrite: boolean; replaced: () => void }) {
  const { place, document } = props;
  const input = useRef<HTMLInputElement>(null);
  const [upload, setUpload] = useState<Upload>();
  const [isBusy, setBusy] = useState(false);
  const load = async () => {
    setBusy(true);
    await download(place, document).catch(failed);
    setBusy(false);
  };
  const choose = async () => {
    const file = input.current?.files?.[0];
    if (!file) return;
    if (file.size > VALUE_BYTES_MAX) return failed(new Error(`A value has at most ${bytes(VALUE_BYTES_MAX)}.`));
    const content = new Uint8Array(await file.arrayBuffer());
    setUpload({ name: file.name, content, format: formatOfFile(looksOf(content), document) });
  };
  const chosen = () =>
    choose()
      .catch(failed)
      // The same file can be chosen again.
      .finally(() => input.current && (input.current.value = ""));
  const replace = async ({ content, format }: Upload) => {
    await ask("PUT", docsPath(place, document.id), {
      query: { encoding: "base64url", cas: document.cas, flags: flagsFor(format, document) },
      body: content,
    });
    done(`Replaced the value of ${keyLabel(document.id)}.`);
    setUpload(undefined);
    props.replaced();
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
          <input ref={input} type="file" hidden aria-label="File with the new value" onChange={chosen} />
        </>
      )}
      {upload && (
        <Replacement
          document={document}
          upload={upload}
          replace={() => replace(upload)}
          close={() => setUpload(undefined)}
        />
      )}
    </div>
  );
}
