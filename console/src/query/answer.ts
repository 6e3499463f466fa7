// The answer of `POST /query/service`, row by row while it arrives.
//
// Owns: the split of the answer into JSON texts. Rows stay texts, so no number loses a digit. At most
// `ROWS_KEPT` rows are kept: a statement that reads is then ended, one that changes runs to its end.

import { ApiError, errorOf, send } from "../api";

export interface StatementError {
  code: number;
  msg: string;
  line?: number;
  column?: number;
}

interface Metrics {
  elapsedTime?: string;
  executionTime?: string;
  resultCount?: number;
  mutationCount?: number;
}

export interface Results {
  /** Names of the fields in the statement's order; `undefined` when only the rows tell. */
  columns?: string[];
  rows: string[];
  /** Rows that arrived, kept or not. */
  count: number;
  state: "running" | "done" | "cut" | "cancelled";
  errors: StatementError[];
  warnings: StatementError[];
  metrics: Metrics;
}

export interface StatementRequest {
  statement: string;
  query_context?: string;
  readonly?: boolean;
}

const ROWS_KEPT = 5000;
const DRAW_MS = 200;

/** Splits a JSON object into its members while it arrives; of one array, into its elements. */
export class ObjectSplitter {
  private text = "";
  private at = 0;
  private depth = 0;
  private start = -1;
  private name = "";
  private isInText = false;
  private isInArray = false;

  constructor(private readonly array?: string) {}

  /** The members that the next part completes, as name and JSON text. */
  *push(part: string): Generator<[name: string, json: string]> {
    this.text += part;
    for (; this.at < this.text.length; this.at++) {
      const char = this.text[this.at]!;
      if (this.isInText) {
        if (char === '"') this.isInText = false;
        else if (char === "\\") {
          // The escaped character may be in the next part.
          if (this.at + 1 === this.text.length) break;
          this.at += 1;
        }
        continue;
      }
      const level = this.isInArray ? 2 : 1;
      if (char === "}" || char === "]" || (char === "," && this.depth === level)) {
        if (this.depth === level && this.start >= 0) yield [this.name, this.text.slice(this.start, this.at).trim()];
        if (this.depth === level) this.start = -1;
        if (char !== ",") this.depth -= 1;
        if (this.isInArray && this.depth === 1) this.isInArray = false;
        else if (char === "," && !this.isInArray && this.depth === 1) this.name = "";
      } else if (char === ":" && this.depth === 1 && this.name === "") {
        this.name = JSON.parse(this.text.slice(this.start, this.at)) as string;
        this.start = -1;
      } else if (!" \t\r\n".includes(char)) {
        this.isInText = char === '"';
        const opens = char === "{" || char === "[";
        if (opens && this.depth === 1 && this.start < 0 && char === "[" && this.name === this.array) {
          this.isInArray = true;
        } else if (this.depth === level && this.start < 0) this.start = this.at;
        if (opens) this.depth += 1;
      }
    }
    const done = this.start < 0 ? this.at : this.start;
    this.text = this.text.slice(done);
    this.at -= done;
    if (this.start > 0) this.start = 0;
  }
}

/** The members of a row as JSON texts; a row that is no object has one without a name. */
export function membersOf(row: string): [name: string, json: string][] {
  return row.startsWith("{") ? [...new ObjectSplitter().push(row)] : [["", row]];
}

/** Whether a statement that is ended early leaves nothing half done. */
export const isReading = (statement: string) =>
  /^(\s|\(|--[^\n]*\n|\/\*[^]*?\*\/)*(select|with|from|explain|infer|advise)\b/i.test(statement);

/** The errors of an answer that has no rows. */
async function errorsOf(response: Response): Promise<StatementError[]> {
  const copy = response.clone();
  try {
    const { errors } = (await response.json()) as { errors?: unknown };
    if (Array.isArray(errors) && errors.length > 0) return errors as StatementError[];
  } catch {
    // Another server's answer, such as that of a proxy.
  }
  throw await errorOf(copy);
}

/** Runs a statement and shows what arrives. */
export async function run(request: StatementRequest, signal: AbortSignal, show: (results: Results) => void) {
  const results: Results = { rows: [], count: 0, state: "running", errors: [], warnings: [], metrics: {} };
  show({ ...results });
  const response = await send("POST", "/query/service", { json: request, signal });
  if (!response.ok || !response.body) {
    results.errors = await errorsOf(response);
    return show({ ...results, state: "done" });
  }
  const mayCut = isReading(request.statement);
  const splitter = new ObjectSplitter("results");
  const reader = response.body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array<ArrayBuffer>>).getReader();
  let drawn = performance.now();
  let status = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      for (const [name, json] of splitter.push(value)) {
        if (name === "results") {
          results.count += 1;
          if (results.rows.length < ROWS_KEPT) results.rows.push(json);
          else if (mayCut) return show({ ...results, count: ROWS_KEPT, state: "cut" });
        } else if (name === "signature") results.columns = columnsOf(json);
        else if (name === "errors") results.errors = JSON.parse(json) as StatementError[];
        else if (name === "warnings") results.warnings = JSON.parse(json) as StatementError[];
        else if (name === "metrics") results.metrics = JSON.parse(json) as Metrics;
        else if (name === "status") status = JSON.parse(json) as string;
      }
      if (performance.now() - drawn > DRAW_MS) {
        drawn = performance.now();
        show({ ...results });
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  if (status === "") throw new ApiError(0, "The answer ended early: the server or the network stopped.");
  show({ ...results, state: "done" });
}

function columnsOf(signature: string): string[] | undefined {
  if (!signature.startsWith("{")) return undefined;
  const names = membersOf(signature).map(([name]) => name);
  return names.includes("*") ? undefined : names;
}

/** The rows of a small statement that reads. */
export async function rowsOf<T>(statement: string): Promise<T[]> {
  const response = await send("POST", "/query/service", { json: { statement, readonly: true } });
  if (!response.ok) throw await errorOf(response);
  return ((await response.json()) as { results?: T[] }).results ?? [];
}

/** The names of all rows' fields: those of the statement, else those of the first rows. */
export function columnNames({ columns, rows }: Results): string[] {
  const named = new Set(columns);
  if (!columns) for (const row of rows.slice(0, 1000)) for (const [name] of membersOf(row)) named.add(name);
  return [...named];
}
