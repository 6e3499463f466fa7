// SQL over documents: `POST /query/sql`, which answers with lines of JSON. A statement names its buckets.
//
// Owns: the statement, which outlives a visit to another page, and the rows that were received. It
// keeps a bounded number of rows and then ends the statement, so a million rows do no harm.

import { useEffect, useRef, useState } from "preact/hooks";
import { errorOf, send, type ApiError } from "../api";
import { count } from "../format";
import { cells, lines } from "../lines";
import { Table } from "../table";
import { Failure, asApiError, useAsked } from "../ui";
import { buckets } from "./catalog";

interface Column {
  name: string;
  type?: string;
}

interface Results {
  columns: Column[];
  rows: (string | null)[][];
  state: "running" | "done" | "cut" | "cancelled";
  elapsedMs?: number;
  error?: ApiError;
}

const ROWS_KEPT = 5000;
const ROWS_SHOWN = 200;
const CELL_CHARS = 300;
const DRAW_MS = 200;
const example = (bucket: string) => `SELECT id, json\nFROM "${bucket.replaceAll('"', '""')}"\nLIMIT 20`;

let lastStatement: string | undefined;

interface Line {
  columns?: Column[];
  end?: string;
  error?: string;
  elapsed_ms?: number;
}

/** Runs a statement and shows what arrives. */
async function run(statement: string, signal: AbortSignal, show: (results: Results) => void) {
  const results: Results = { columns: [], rows: [], state: "running" };
  let drawn = performance.now();
  show({ ...results });
  const response = await send("POST", "/query/sql", { json: { statement }, signal });
  if (!response.ok || !response.body) throw await errorOf(response);
  for await (const line of lines(response.body)) {
    if (line.startsWith("[")) {
      results.rows.push(cells(line));
      if (results.rows.length >= ROWS_KEPT) {
        return show({ ...results, state: "cut" });
      }
    } else if (line !== "") {
      const said = JSON.parse(line) as Line;
      // Of several statements the last one's rows are shown.
      if (said.columns) Object.assign(results, { columns: said.columns, rows: [] });
      results.elapsedMs = said.elapsed_ms ?? results.elapsedMs;
      if (said.error) results.error = asApiError(new Error(said.error));
    }
    if (performance.now() - drawn > DRAW_MS) {
      drawn = performance.now();
      show({ ...results });
    }
  }
  show({ ...results, state: "done" });
}

function CellText({ value }: { value: string | null }) {
  if (value === null) return <em class="muted">null</em>;
  return <>{value.length > CELL_CHARS ? `${value.slice(0, CELL_CHARS)}…` : value}</>;
}

function Rows({ results }: { results: Results }) {
  const [from, setFrom] = useState(0);
  const shown = results.rows.slice(from, from + ROWS_SHOWN);
  return (
    <>
      <Table caption="Rows" columns={results.columns.map(({ name }) => name)} tall>
        {shown.map((row, index) => (
          <tr key={from + index}>
            {row.map((value, at) => (
              <td key={at}>
                <div class="cell">
                  <CellText value={value} />
                </div>
              </td>
            ))}
          </tr>
        ))}
      </Table>
      {results.rows.length > ROWS_SHOWN && (
        <div class="buttons start">
          <button type="button" disabled={from === 0} onClick={() => setFrom(from - ROWS_SHOWN)}>
            Previous rows
          </button>
          <button
            type="button"
            disabled={from + ROWS_SHOWN >= results.rows.length}
            onClick={() => setFrom(from + ROWS_SHOWN)}
          >
            Next rows
          </button>
          <span class="muted">
            {count(from + 1)} – {count(from + shown.length)}
          </span>
        </div>
      )}
    </>
  );
}

function summary({ state, rows, elapsedMs }: Results): string {
  const number = `${count(rows.length)} row${rows.length === 1 ? "" : "s"}`;
  const took = elapsedMs === undefined ? "" : ` in ${count(elapsedMs)} ms`;
  switch (state) {
    case "running":
      return `Running, ${number} so far…`;
    case "done":
      return `${number}${took}.`;
    case "cut":
      return `The first ${number}. The statement was ended; a LIMIT or a condition makes the answer smaller.`;
    case "cancelled":
      return `Cancelled after ${number}.`;
  }
}

export function QueryPage() {
  const all = useAsked(buckets, []);
  const [typed, setStatement] = useState(lastStatement);
  const [results, setResults] = useState<Results>();
  const [error, setError] = useState<ApiError>();
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  const [first] = all.value ?? [];
  const statement = typed ?? (first ? example(first.name) : "");
  const isRunning = results?.state === "running";
  const start = async () => {
    running.current?.abort();
    const abort = new AbortController();
    running.current = abort;
    lastStatement = statement;
    setError(undefined);
    try {
      await run(statement, abort.signal, (results) => abort.signal.aborted || setResults(results));
    } catch (failure) {
      if (abort.signal.aborted) return;
      setResults(undefined);
      setError(asApiError(failure));
    }
  };
  const cancel = () => {
    running.current?.abort();
    setResults((results) => results && { ...results, state: "cancelled" });
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      void start();
    }
  };
  return (
    <>
      <h1>Query</h1>
      <div class="panel">
        <label for="statement">SQL statement</label>
        <textarea
          id="statement"
          class="editor"
          data-search
          rows={6}
          spellcheck={false}
          autocomplete="off"
          value={statement}
          // An example that came later would be in the middle of what is typed.
          onFocus={() => statement === "" && setStatement("")}
          onInput={(event) => setStatement((event.target as HTMLTextAreaElement).value)}
          onKeyDown={press}
        />
        <div class="buttons start">
          <button type="button" class="primary" disabled={isRunning || statement.trim() === ""} onClick={start}>
            Run
          </button>
          <button type="button" disabled={!isRunning} onClick={cancel}>
            Cancel
          </button>
          <span class="hint">
            <kbd>Ctrl Enter</kbd> runs. Statements only read. A table is a bucket, or{" "}
            <code>"bucket.scope.collection"</code>.
          </span>
        </div>
      </div>
      <Failure error={error ?? results?.error} />
      {results && <p role="status">{summary(results)}</p>}
      {results && results.columns.length > 0 && <Rows results={results} key={results.columns.length} />}
    </>
  );
}
