// The rows of a statement: as a table, as JSON, as a plan, and as files.

import { useMemo, useState } from "preact/hooks";
import { count, respaced } from "../format";
import { save } from "../save";
import { Table } from "../table";
import { columnNames, membersOf, type Results, type StatementError } from "./answer";
import { PlanView, planOf } from "./plan";

const ROWS_SHOWN = 200;
const CELL_CHARS = 300;

/** A value as a cell has it: a text without its quotes. */
const plain = (json: string) => (json.startsWith('"') ? (JSON.parse(json) as string) : json);

function CellText({ json }: { json: string | undefined }) {
  if (json === undefined) return null;
  if (json === "null") return <em class="muted">null</em>;
  const text = plain(json.length > 10 * CELL_CHARS && !json.startsWith('"') ? json.slice(0, CELL_CHARS + 1) : json);
  return <>{text.length > CELL_CHARS ? `${text.slice(0, CELL_CHARS)}…` : text}</>;
}

function RowTable({ rows, columns, from }: { rows: string[]; columns: string[]; from: number }) {
  return (
    <Table caption="Rows" columns={columns.map((name) => name || "value")} tall>
      {rows.map((row, index) => {
        const fields = new Map(membersOf(row));
        return (
          <tr key={from + index}>
            {columns.map((name) => (
              <td key={name}>
                <div class="cell">
                  <CellText json={fields.get(name)} />
                </div>
              </td>
            ))}
          </tr>
        );
      })}
    </Table>
  );
}

const quotedCell = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function csv(columns: string[], rows: string[]): string {
  const lines = rows.map((row) => {
    const fields = new Map(membersOf(row));
    const cell = (name: string) => {
      const json = fields.get(name) ?? "null";
      return json === "null" ? "" : quotedCell(plain(json));
    };
    return columns.map(cell).join(",");
  });
  const header = columns.map((name) => quotedCell(name || "value")).join(",");
  return [header, ...lines, ""].join("\r\n");
}

type View = "table" | "json" | "plan";

export function ResultRows({ results }: { results: Results }) {
  const { rows } = results;
  const [from, setFrom] = useState(0);
  const [chosen, setView] = useState<View>();
  const columns = useMemo(() => columnNames(results), [rows, rows.length, results.columns]);
  const plan = useMemo(() => planOf(rows), [rows, rows.length]);
  const view = chosen ?? (plan ? "plan" : "table");
  const shown = rows.slice(from, from + ROWS_SHOWN);
  const views: [View, string][] = [["table", "Table"], ["json", "JSON"]];
  if (plan) views.unshift(["plan", "Plan"]);
  const saveAs = (ending: string, type: string, text: string) => save(`rows.${ending}`, new Blob([text], { type }));
  return (
    <>
      <div class="buttons start">
        <div role="group" aria-label="Show the rows as" class="buttons start">
          {views.map(([name, title]) => (
            <button type="button" key={name} aria-pressed={view === name} onClick={() => setView(name)}>
              {title}
            </button>
          ))}
        </div>
        <span class="grow" />
        <button
          type="button"
          onClick={() => saveAs("json", "application/json", `[\n${rows.join(",\n")}\n]\n`)}
        >
          Export JSON
        </button>
        <button type="button" onClick={() => saveAs("csv", "text/csv", csv(allColumns(results, columns), rows))}>
          Export CSV
        </button>
      </div>
      {view === "plan" && plan && <PlanView plan={plan} />}
      {view === "table" && <RowTable rows={shown} columns={columns} from={from} />}
      {view === "json" && (
        <pre class="editor" tabIndex={0} role="region" aria-label="Rows as JSON">
          {shown.map((row) => respaced(row, 2)).join(",\n")}
        </pre>
      )}
      {rows.length > ROWS_SHOWN && (
        <div class="buttons start">
          <button type="button" disabled={from === 0} onClick={() => setFrom(from - ROWS_SHOWN)}>
            Previous rows
          </button>
          <button type="button" disabled={from + ROWS_SHOWN >= rows.length} onClick={() => setFrom(from + ROWS_SHOWN)}>
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

/** The table's columns, and those that only later rows have. */
function allColumns({ columns, rows }: Results, shown: string[]): string[] {
  if (columns) return shown;
  const all = new Set(shown);
  for (const row of rows) for (const [name] of membersOf(row)) all.add(name);
  return [...all];
}

/** Errors of a statement, with the way to their place in it. */
export function StatementErrors(props: { errors: StatementError[]; kind: "failure" | "notice"; go: (error: StatementError) => void }) {
  if (props.errors.length === 0) return null;
  return (
    <div class={`${props.kind} statement-errors`} role={props.kind === "failure" ? "alert" : undefined}>
      {props.errors.map((error, at) => {
        const place = error.line ? `line ${error.line}, column ${error.column}` : "";
        return (
          <p key={at}>
            <strong>{error.code}</strong> {error.msg}
            {place && !error.msg.includes(place) && ` – ${place}`}{" "}
            {place && (
              <button type="button" onClick={() => props.go(error)}>
                Go to {place}
              </button>
            )}
          </p>
        );
      })}
    </div>
  );
}

/** A time of the server, such as `1.234567ms`, with three digits. */
const shortTime = (time: string) =>
  time.replace(/^([\d.]+)(\D+)$/, (_, value: string, unit: string) => `${Number(Number(value).toPrecision(3))} ${unit}`);

export function summary({ state, rows, count: arrived, metrics, errors }: Results): string {
  const number = `${count(arrived)} row${arrived === 1 ? "" : "s"}`;
  const took = metrics.elapsedTime ? ` in ${shortTime(metrics.elapsedTime)}` : "";
  const inside = metrics.executionTime ? ` (${shortTime(metrics.executionTime)} of execution)` : "";
  const changed = metrics.mutationCount ? ` ${count(metrics.mutationCount)} changed.` : "";
  const kept = rows.length < arrived ? ` The first ${count(rows.length)} are shown.` : "";
  switch (state) {
    case "running":
      return `Running, ${number} so far…`;
    case "done":
      return `${errors.length > 0 ? "Failed after " : ""}${number}${took}${inside}.${changed}${kept}`;
    case "cut":
      return `The first ${number}. The statement was ended; a LIMIT or a condition makes the answer smaller.`;
    case "cancelled":
      return `Cancelled after ${number}.`;
  }
}
