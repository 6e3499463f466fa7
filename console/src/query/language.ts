// The words of SQL++: colours of a statement, and what may stand at the caret.
//
// `words.json` has the words of the server's parser; a test of `oribi-admin` compares them.

import words from "./words.json";

export type TokenClass = "keyword" | "function" | "text" | "number" | "parameter" | "comment" | "plain";

const KEYWORDS = new Set(words.keywords);
const FUNCTION_NAMES = [...words.functions, "META"];
const FUNCTIONS = new Set(FUNCTION_NAMES);

/** Longer statements have no colours. */
const COLOURED_CHARS_MAX = 64 << 10;

const TOKEN =
  /(--[^\n]*|\/\*[^]*?(?:\*\/|$))|('(?:[^'\\]|''|\\[^])*'?|"(?:[^"\\]|""|\\[^])*"?)|(`(?:[^`\\]|``|\\[^])*`?)|(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([$@]\w+|\?)|([\p{L}_][\p{L}\p{N}_$]*)/gu;

/** A statement as pieces of one class each, which together are the statement. */
export function pieces(statement: string): [TokenClass, string][] {
  if (statement.length > COLOURED_CHARS_MAX) return [["plain", statement]];
  const found: [TokenClass, string][] = [];
  let end = 0;
  for (const match of statement.matchAll(TOKEN)) {
    const [text, comment, quoted, name, number, parameter] = match;
    if (match.index > end) found.push(["plain", statement.slice(end, match.index)]);
    end = match.index + text.length;
    const kind = comment ? "comment" : quoted ? "text" : name ? "plain" : number ? "number" : parameter ? "parameter" : "";
    found.push([kind || wordClass(text.toUpperCase(), statement, end), text]);
  }
  if (end < statement.length) found.push(["plain", statement.slice(end)]);
  return found;
}

function wordClass(word: string, statement: string, end: number): TokenClass {
  if (FUNCTIONS.has(word) && /^\s*\(/.test(statement.slice(end, end + 8))) return "function";
  return KEYWORDS.has(word) ? "keyword" : "plain";
}

/** A name as a statement has it: in backticks where it must be. */
export const quoted = (name: string) =>
  /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !KEYWORDS.has(name.toUpperCase())
    ? name
    : "`" + name.replaceAll("\\", "\\\\").replaceAll("`", "``") + "`";

export interface Candidate {
  text: string;
  kind: "keyspace" | "field" | "function" | "keyword";
}

export interface Completion {
  /** Where the word at the caret begins. */
  start: number;
  candidates: Candidate[];
}

const CANDIDATES_MAX = 100;
const WORD_CHARS = /[\p{L}\p{N}_.`$-]*$/u;
const BEFORE_KEYSPACES = /\b(from|join|nest|into|update|on|keyspace)\s+$/i;

const isInside = (statement: string, caret: number) => {
  let end = 0;
  for (const [kind, text] of pieces(statement)) {
    const start = end;
    end += text.length;
    if (caret > start && caret <= end) {
      const isOpen = kind === "comment" ? !text.endsWith("*/") : text.length < 2 || text[0] !== text.at(-1);
      return (kind === "comment" || kind === "text") && (caret < end || isOpen);
    }
  }
  return false;
};

/** Whether a name begins with what was typed, quoted or not, in either case. */
const fits = (name: string, typed: string) => {
  const begins = (name: string) => name.toLowerCase().startsWith(typed.toLowerCase());
  return begins(name) || begins(name.replace(/^`/, ""));
};

/** What may stand at the caret. An empty word has candidates when they are `asked` for, and after words such as FROM. */
export function complete(
  statement: string,
  caret: number,
  names: { keyspaces: string[]; fields: string[] },
  asked: boolean,
): Completion | undefined {
  if (statement.length > COLOURED_CHARS_MAX || isInside(statement, caret)) return undefined;
  const before = statement.slice(0, caret);
  const word = WORD_CHARS.exec(before)![0];
  const start = caret - word.length;
  const onlyKeyspaces = BEFORE_KEYSPACES.test(before.slice(0, start));
  if (/^[\d-]/.test(word) || (word === "" && !onlyKeyspaces && !asked)) return undefined;
  const candidates: Candidate[] = [];
  const add = (kind: Candidate["kind"], texts: string[]) =>
    candidates.push(...texts.map((text) => ({ kind, text })));
  const keyspaces = names.keyspaces.filter((path) => fits(path, word));
  if (!onlyKeyspaces) {
    // A path of an alias is completed in its last part.
    const dot = word.lastIndexOf(".") + 1;
    const fields = names.fields.filter((field) => fits(field, word.slice(dot)));
    add("field", fields.map((field) => word.slice(0, dot) + field));
  }
  add("keyspace", keyspaces);
  if (!onlyKeyspaces && word !== "" && !word.includes(".")) {
    const isLower = word[0] === word[0]!.toLowerCase();
    const cased = (words: string[]) => (isLower ? words.map((word) => word.toLowerCase()) : words);
    add("keyword", cased(words.keywords.filter((known) => fits(known, word))));
    add("function", cased(FUNCTION_NAMES.filter((known) => fits(known, word))).map((name) => `${name}(`));
  }
  const others = candidates.filter(({ text }) => text !== word);
  return others.length > 0 ? { start, candidates: others.slice(0, CANDIDATES_MAX) } : undefined;
}
