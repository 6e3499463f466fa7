// Dialogs with the statements of earlier: the history, and those that the user saved.

import { useState } from "preact/hooks";
import { time } from "../format";
import { Dialog, RequestForm, TextField, failed } from "../ui";
import { history, keepStatements, savedStatements } from "./kept";

interface LibraryProps {
  open: (statement: string, context: string) => void;
  close: () => void;
}

function Choice(props: { title: string; note: string; statement: string; open: () => void; drop?: () => void }) {
  return (
    <li>
      <div class="heading">
        <span>
          <strong>{props.title}</strong> <span class="muted">{props.note}</span>
        </span>
        <button type="button" onClick={props.open} aria-label={`Open ${props.title}`}>
          Open
        </button>
        {props.drop && (
          <button type="button" class="danger" onClick={props.drop} aria-label={`Delete ${props.title}`}>
            Delete
          </button>
        )}
      </div>
      <pre class="clipped">{props.statement}</pre>
    </li>
  );
}

export function HistoryDialog({ open, close }: LibraryProps) {
  const past = history();
  return (
    <Dialog title="History" close={close} wide>
      {past.length === 0 && <p>No statement has run yet.</p>}
      <ol class="library">
        {past.map(({ statement, context, unixMs }) => (
          <Choice
            key={unixMs}
            title={time(unixMs)}
            note={context}
            statement={statement}
            open={() => (open(statement, context), close())}
          />
        ))}
      </ol>
      <p class="hint">The history ends when you log out or close the tab.</p>
    </Dialog>
  );
}

export function SavedDialog(props: LibraryProps & { user: string; statement: string; context: string }) {
  const { open, close, user, statement, context } = props;
  const [all, setAll] = useState(() => savedStatements(user));
  const [name, setName] = useState("");
  const keep = (next: typeof all) => {
    keepStatements(user, next);
    setAll(next);
  };
  const add = async () => {
    const others = all.filter((one) => one.name !== name.trim());
    keep([...others, { name: name.trim(), statement, context }].sort((a, b) => a.name.localeCompare(b.name)));
    setName("");
  };
  const drop = (name: string) => {
    try {
      keep(all.filter((one) => one.name !== name));
    } catch (error) {
      failed(error);
    }
  };
  const isKnown = all.some((one) => one.name === name.trim());
  return (
    <Dialog title="Saved statements" close={close} wide>
      <RequestForm
        text={isKnown ? "Replace" : "Save this statement"}
        disabled={name.trim() === "" || statement.trim() === ""}
        submit={add}
      >
        <TextField label="Name" value={name} change={setName} autocomplete="off" hint="This browser keeps them, for your user." />
      </RequestForm>
      <ol class="library">
        {all.map((one) => (
          <Choice
            key={one.name}
            title={one.name}
            note={one.context}
            statement={one.statement}
            open={() => (open(one.statement, one.context), close())}
            drop={() => drop(one.name)}
          />
        ))}
      </ol>
    </Dialog>
  );
}
