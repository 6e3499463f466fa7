// The form of a new document.

import { useState } from "preact/hooks";
import { jsonError } from "../format";
import { keyId } from "../keys";
import { Dialog, RequestForm, TextField, done } from "../ui";
import type { Place } from "./documents";
import { Editor, FormatField, NotJson } from "./editor";
import { flagsFor, write, type Format } from "./stored";

export function NewDocument(props: { place: Place; close: () => void; created: (id: string) => void }) {
  const [key, setKey] = useState("");
  const [text, setText] = useState("{\n}");
  const [format, setFormat] = useState<Format>("json");
  const [life, setLife] = useState("");
  const [isAsking, setAsking] = useState(false);
  const create = async (format: Format) => {
    const id = keyId(key);
    const query = { mode: "add", flags: flagsFor(format), expiry: life || undefined };
    await write(props.place, id, text, format, query);
    done(`Created ${key}.`);
    props.created(id);
  };
  const submit = async () => {
    if (format === "json" && jsonError(text) !== undefined) setAsking(true);
    else await create(format);
  };
  return (
    <>
      <Dialog title="New document" close={props.close} wide>
        <RequestForm text="Create" cancel={props.close} submit={submit} disabled={key === ""}>
          <TextField label="Key" value={key} change={setKey} required autocomplete="off" spellcheck={false} />
          <Editor label="Value" text={text} format={format} change={setText} />
          <div class="tools top">
            <FormatField formats={["json", "text"]} value={format} change={setFormat} />
            <TextField
              label="Expires in seconds"
              hint="Empty for never; more than 30 days as a UNIX time"
              type="number"
              min={0}
              value={life}
              change={setLife}
            />
          </div>
        </RequestForm>
      </Dialog>
      {isAsking && <NotJson text={text} store={() => create("text")} close={() => setAsking(false)} />}
    </>
  );
}
