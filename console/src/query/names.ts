// Keyspaces and their fields, as the user may read them, for completion.

import { rowsOf } from "./answer";
import { quoted } from "./language";

export interface Keyspace {
  bucket: string;
  /** Both are missing for a bucket's default collection. */
  scope?: string | null;
  name: string;
}

const KEYSPACES =
  "SELECT IFMISSING(k.`bucket`, k.name) AS `bucket`, k.`scope`, k.name FROM system:keyspaces AS k";

/** The keyspaces of the server; none when they cannot be read. */
export async function keyspaces(): Promise<Keyspace[]> {
  return rowsOf<Keyspace>(KEYSPACES).catch(() => []);
}

const pathOf = ({ bucket, scope, name }: Keyspace) =>
  (scope ? [bucket, scope, name] : [bucket]).map(quoted).join(".");

/** Paths as a statement has them; those of the context also without bucket and scope. */
export function pathsIn(all: Keyspace[], context: string): Map<string, string> {
  const paths = new Map<string, string>();
  for (const keyspace of all) {
    const path = pathOf(keyspace);
    if (keyspace.scope && contextOf(keyspace.bucket, keyspace.scope) === context) paths.set(quoted(keyspace.name), path);
    paths.set(path, path);
  }
  return new Map([...paths].sort(([left], [right]) => (left < right ? -1 : 1)));
}

export const contextOf = (bucket: string, scope: string) => `${quoted(bucket)}.${quoted(scope)}`;

/** All scopes that may be a statement's context. */
export const contexts = (all: Keyspace[]) =>
  [...new Set(all.map(({ bucket, scope }) => contextOf(bucket, scope || "_default")))].sort();

/** Whether a statement has a path as a whole word. */
function names(statement: string, path: string): boolean {
  const isWord = (char: string | undefined) => char !== undefined && /[\p{L}\p{N}_.`]/u.test(char);
  for (let at = statement.indexOf(path); at >= 0; at = statement.indexOf(path, at + 1)) {
    if (!isWord(statement[at - 1]) && !isWord(statement[at + path.length])) return true;
  }
  return false;
}

/** Fields of a few documents of each keyspace that was named. */
export class FieldNames {
  private known = new Map<string, string[]>();

  constructor(private readonly changed: () => void) {}

  /** The known fields of all keyspaces that a statement names; unknown ones are asked for. */
  of(statement: string, paths: Map<string, string>): string[] {
    const found = new Set<string>();
    for (const [text, path] of paths) {
      if (!names(statement, text)) continue;
      const fields = this.known.get(path);
      if (!fields) void this.ask(path);
      fields?.forEach((field) => found.add(field));
    }
    return [...found].sort();
  }

  private async ask(path: string) {
    this.known.set(path, []);
    const rows = await rowsOf<string[] | null>(`SELECT RAW OBJECT_NAMES(d) FROM ${path} AS d LIMIT 20`).catch(() => []);
    this.known.set(path, [...new Set(rows.flatMap((names) => names ?? []).map(quoted))]);
    this.changed();
  }
}
