// Statements of earlier: the history, which ends with the tab or the login, and those that the user saved.
//
// Both are the user's own: saved ones are in the browser's storage under the user's name.

const HISTORY = "oribi-console-history";
const SAVED = "oribi-console-statements";
const HISTORY_MAX = 50;
const STATEMENT_CHARS_MAX = 64 << 10;

export interface PastStatement {
  statement: string;
  context: string;
  unixMs: number;
}

function read<T>(storage: Storage, key: string, otherwise: T): T {
  try {
    return (JSON.parse(storage.getItem(key) ?? "null") as T | null) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Newest first. */
export const history = () => read<PastStatement[]>(sessionStorage, HISTORY, []);

export function remember(statement: string, context: string) {
  if (statement.length > STATEMENT_CHARS_MAX) return;
  const others = history().filter((past) => past.statement !== statement || past.context !== context);
  const all = [{ statement, context, unixMs: Date.now() }, ...others].slice(0, HISTORY_MAX);
  try {
    sessionStorage.setItem(HISTORY, JSON.stringify(all));
  } catch {
    // The storage is full: the history is no reason to refuse a statement.
    sessionStorage.removeItem(HISTORY);
  }
}

export const forgetHistory = () => sessionStorage.removeItem(HISTORY);

export interface SavedStatement {
  name: string;
  statement: string;
  context: string;
}

type SavedByUser = Record<string, SavedStatement[]>;

export const savedStatements = (user: string) => read<SavedByUser>(localStorage, SAVED, {})[user] ?? [];

/** Replaces the user's saved statements, or fails when the browser's storage is full. */
export function keepStatements(user: string, all: SavedStatement[]) {
  localStorage.setItem(SAVED, JSON.stringify({ ...read<SavedByUser>(localStorage, SAVED, {}), [user]: all }));
}
