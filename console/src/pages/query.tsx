// SQL++ over documents: `POST /query/service` at the admin port.
//
// Owns: the statement and its settings, which outlive a visit to another page, and the rows that were
// received. Leaving the page ends a statement that reads; one that changes documents runs to its end.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ApiError } from "../api";
import { useApp } from "../app";
import { isReading, run, type Results, type StatementError } from "../query/answer";
import { StatementEditor } from "../query/editor";
import { remember } from "../query/kept";
import { quoted } from "../query/language";
import { IndexesDialog } from "../query/indexes";
import { HistoryDialog, SavedDialog } from "../query/library";
import { FieldNames, contexts, keyspaces, pathsIn } from "../query/names";
import { ResultRows, StatementErrors, summary } from "../query/results";
import { Failure, SelectField, asApiError, useAsked } from "../ui";
import { buckets } from "./catalog";

const example = (bucket: string) => `SELECT META(d).id, d.*\nFROM ${quoted(bucket)} AS d\nLIMIT 20`;

/** EXPLAIN has a line of its own, so the lines of errors are one too many. */
const EXPLAIN = "EXPLAIN\n";

let last: { statement?: string; context: string; isReadOnly: boolean } = { context: "", isReadOnly: false };

export function forgetStatement() {
  last = { context: "", isReadOnly: false };
}

/** The place of an error in the statement's text. Columns count bytes. */
function placeOf(statement: string, { line = 1, column = 1 }: StatementError): number {
  const rows = statement.split("\n");
  const before = rows.slice(0, line - 1).reduce((sum, row) => sum + row.length + 1, 0);
  const bytes = new TextEncoder().encode(rows[line - 1] ?? "").slice(0, column - 1);
  return before + new TextDecoder().decode(bytes).length;
}

const withoutExplain = (errors: StatementError[]) =>
  errors.map((error) => {
    if (!error.line) return error;
    const line = Math.max(1, error.line - 1);
    return { ...error, line, msg: error.msg.replace(`line ${error.line},`, `line ${line},`) };
  });

export function QueryPage() {
  const { user } = useApp();
  const all = useAsked(buckets, []);
  const known = useAsked(keyspaces, []);
  const [typed, setTyped] = useState(last.statement);
  const [context, setContext] = useState(last.context);
  const [isReadOnly, setReadOnly] = useState(last.isReadOnly);
  const [results, setResults] = useState<Results & { run: number }>();
  const [error, setError] = useState<ApiError>();
  const [dialog, setDialog] = useState<"history" | "indexes" | "saved">();
  const [, redraw] = useState(0);
  const running = useRef<{ abort: AbortController; mayEnd: boolean } | null>(null);
  const runs = useRef(0);
  const field = useRef<HTMLTextAreaElement>(null);
  const fields = useMemo(() => new FieldNames(() => redraw((turn) => turn + 1)), []);
  const paths = useMemo(() => pathsIn(known.value ?? [], context), [known.value, context]);
  const offered = useMemo(() => contexts(known.value ?? []), [known.value]);
  useEffect(() => () => void (running.current?.mayEnd && running.current.abort.abort()), []);
  const [first] = all.value ?? [];
  const statement = typed ?? (first ? example(first.name) : "");
  last = { statement: typed, context, isReadOnly };
  const isRunning = results?.state === "running";
  const start = async (isExplained = false) => {
    if (isRunning || statement.trim() === "") return;
    const abort = new AbortController();
    running.current = { abort, mayEnd: isExplained || isReading(statement) };
    const number = ++runs.current;
    last.statement = statement;
    setTyped(statement);
    setError(undefined);
    remember(statement, context);
    const isPrefixed = isExplained && !/^\s*explain\b/i.test(statement);
    const request = {
      statement: (isPrefixed ? EXPLAIN : "") + statement,
      query_context: context === "" ? undefined : `default:${context}`,
      readonly: isReadOnly || undefined,
    };
    const show = (results: Results) => {
      if (abort.signal.aborted) return;
      const errors = isPrefixed ? withoutExplain(results.errors) : results.errors;
      setResults({ ...results, errors, run: number });
    };
    try {
      await run(request, abort.signal, show);
    } catch (failure) {
      if (abort.signal.aborted) return;
      setResults(undefined);
      setError(asApiError(failure));
    }
  };
  const cancel = () => {
    running.current?.abort.abort();
    setResults((results) => results && { ...results, state: "cancelled" });
  };
  const go = (error: StatementError) => {
    const at = placeOf(statement, error);
    field.current?.focus();
    field.current?.setSelectionRange(at, at + 1);
  };
  const open = (statement: string, context: string) => {
    setTyped(statement);
    setContext(context);
  };
  const library = { open, close: () => setDialog(undefined) };
  return (
    <>
      <h1>Query</h1>
      <div class="panel">
        <label for="statement">SQL++ statement</label>
        <StatementEditor
          field={field}
          value={statement}
          change={setTyped}
          run={() => void start()}
          names={(text) => ({ keyspaces: [...paths.keys()], fields: fields.of(text, paths) })}
        />
        <div class="tools">
          <SelectField
            label="Query context"
            value={context}
            options={[["", "None"], ...offered, ...(context && !offered.includes(context) ? [context] : [])]}
            change={setContext}
          />
          <label class="check">
            <input
              type="checkbox"
              checked={isReadOnly}
              onChange={(event) => setReadOnly(event.currentTarget.checked)}
            />
            Read only
          </label>
          <span class="grow" />
          <button type="button" onClick={() => setDialog("indexes")}>
            Indexes
          </button>
          <button type="button" onClick={() => setDialog("history")}>
            History
          </button>
          <button type="button" onClick={() => setDialog("saved")}>
            Saved statements
          </button>
        </div>
        <div class="buttons start">
          <button
            type="button"
            class="primary"
            disabled={isRunning || statement.trim() === ""}
            onClick={() => void start()}
          >
            Run
          </button>
          <button type="button" disabled={isRunning || statement.trim() === ""} onClick={() => void start(true)}>
            Explain
          </button>
          <button type="button" disabled={!isRunning} onClick={cancel}>
            Cancel
          </button>
          <span class="hint">
            <kbd>Ctrl Enter</kbd> runs, <kbd>Ctrl Space</kbd> completes. A keyspace is a bucket, or{" "}
            <code>bucket.scope.collection</code>.
          </span>
        </div>
      </div>
      <Failure error={error} />
      {results && <StatementErrors errors={results.errors} kind="failure" go={go} />}
      {results && <StatementErrors errors={results.warnings} kind="notice" go={go} />}
      {results && <p role="status">{summary(results)}</p>}
      {results && results.rows.length > 0 && <ResultRows results={results} key={results.run} />}
      {dialog === "indexes" && <IndexesDialog close={library.close} />}
      {dialog === "history" && <HistoryDialog {...library} />}
      {dialog === "saved" && <SavedDialog {...library} user={user.id} statement={statement} context={context} />}
    </>
  );
}
