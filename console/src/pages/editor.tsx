// The editor of a value: its text, its format, and the question before a text that is no JSON is stored.

import { jsonError } from "../format";
import { Dialog, RequestForm, SelectField } from "../ui";
import { FORMAT_NAMES, type Format } from "./stored";

interface EditorProps {
  label: string;
  text: string;
  format: Format;
  change: (text: string) => void;
  /** What Ctrl Enter does; the form is submitted without it. */
  save?: () => void;
  isReadOnly?: boolean;
}

/** A text with its own check and the key that saves. */
export function Editor({ label, text, format, change, save, isReadOnly }: EditorProps) {
  const problem = format === "json" ? jsonError(text) : undefined;
  const press = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    if (save) save();
    else (event.target as HTMLTextAreaElement).form?.requestSubmit();
  };
  return (
    <>
      <textarea
        class="editor"
        aria-label={label}
        aria-invalid={problem !== undefined}
        spellcheck={false}
        autocomplete="off"
        readOnly={isReadOnly}
        rows={Math.min(32, Math.max(10, text.split("\n").length + 1))}
        value={text}
        onInput={(event) => change((event.target as HTMLTextAreaElement).value)}
        onKeyDown={press}
      />
      {!isReadOnly && format === "json" && (
        <p class={problem === undefined ? "hint" : "hint wrong"} role="status">
          {problem === undefined ? "Valid JSON" : `Not valid JSON: ${problem}`}
        </p>
      )}
    </>
  );
}

export function FormatField(props: { formats: Format[]; value: Format; change: (format: Format) => void }) {
  return (
    <SelectField
      label="Stored as"
      value={props.value}
      options={props.formats.map((format) => [format, FORMAT_NAMES[format]])}
      change={(value) => props.change(value as Format)}
    />
  );
}

/** Asks before a text is stored as another format than the one that was chosen. */
export function NotJson(props: { text: string; store: () => Promise<unknown>; close: () => void }) {
  return (
    <Dialog title="This is not valid JSON" close={props.close}>
      <RequestForm danger text="Store it as text" cancelText="Keep editing" cancel={props.close} submit={props.store}>
        <p class="problem">{jsonError(props.text)}</p>
        <p>
          It can be stored as text, with the flags of a text. Programs that expect JSON in this document fail to decode
          it.
        </p>
      </RequestForm>
    </Dialog>
  );
}
