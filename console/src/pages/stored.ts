// A document as the server stores it: reading, writing, and the format that its flags name.
//
// Owns: the format. Client libraries decode a value by the format in its flags, so the flags follow
// the value: a text over a JSON document is stored with the flags of a text. Flags that name no format,
// as of memcached clients, stay while the format stays.

import { ask, get } from "../api";
import { jsonError, respaced } from "../format";
import { utf8 } from "../keys";
import { docsPath, type Place } from "./documents";

export type Format = "json" | "text" | "binary";

export interface Document {
  id: string;
  key?: string;
  cas: string;
  locked: boolean;
  flags: number;
  bytes: number;
  compressed: boolean;
  damaged: boolean;
  vbucket: number;
  /** What the value looks like to the server. */
  datatype: Format;
  truncated: boolean;
  text?: string;
  base64?: string;
  attributes: Record<string, string | null>;
  expiry?: number;
  revision?: string;
  seqno?: string;
}

/** The longest value that is edited in the page. */
export const EDITABLE_BYTES_MAX = 2 ** 20;

/** What is shown of a longer one. */
export const BEGINNING_CHARS = 2 ** 16;

export const FORMAT_NAMES: Record<Format, string> = { json: "JSON", text: "text", binary: "bytes" };

/** The format is in the highest byte of the flags, in all of Couchbase's client libraries. */
const FORMAT_SHIFT = 24;
const FORMAT_MASK = 0x0f;
const FORMAT_CODES: Record<Format, number> = { json: 2, binary: 3, text: 4 };
const FORMATS = Object.keys(FORMAT_CODES) as Format[];

/** The format that flags name; `undefined` when they name none. */
export const namedFormat = (flags: number): Format | undefined =>
  FORMATS.find((format) => FORMAT_CODES[format] === ((flags >>> FORMAT_SHIFT) & FORMAT_MASK));

/** The format in which clients read a document, as far as its value can be that. */
export function formatOf({ flags, datatype }: Pick<Document, "flags" | "datatype">): Format {
  const named = namedFormat(flags);
  return named !== undefined && fits(named, datatype) ? named : datatype;
}

/** Whether a value of some looks can be read in a format: JSON is a text, and all are bytes. */
const fits = (format: Format, looks: Format) =>
  format === looks || format === "binary" || (format === "text" && looks === "json");

const freshFlags = (format: Format) => (FORMAT_CODES[format] << FORMAT_SHIFT) >>> 0;

/** The flags of a value that takes the place of a document's, or of a new document's. */
export function flagsFor(format: Format, document?: Pick<Document, "flags" | "datatype">): number {
  if (!document) return freshFlags(format);
  const named = namedFormat(document.flags);
  const stays = named === undefined ? format === document.datatype : format === named;
  return stays ? document.flags : freshFlags(format);
}

/** What the bytes of a file look like. */
export function looksOf(bytes: Uint8Array): Format {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return "binary";
  }
  return jsonError(text) === undefined ? "json" : "text";
}

/** The format of a file that takes the place of a document's value: that of the document, if it can be. */
export function formatOfFile(looks: Format, document: Document): Format {
  const format = formatOf(document);
  return fits(format, looks) ? format : looks;
}

const INDENT = 2;

export const indented = (json: string) => respaced(json, INDENT);

export function shownText(document: Document): string {
  const { text = "", truncated } = document;
  if (truncated) return text.slice(0, BEGINNING_CHARS);
  return formatOf(document) === "json" ? indented(text) : text;
}

export const readDocument = (place: Place, id: string, signal?: AbortSignal) =>
  get<Document>(docsPath(place, id), { encoding: "base64url", bytes: EDITABLE_BYTES_MAX }, signal);

type Query = Record<string, string | number | undefined>;

/** Writes a text: JSON without white space, any other as it is. */
export function write(place: Place, id: string, text: string, format: Format, query: Query) {
  const value = format === "json" ? respaced(text, 0) : text;
  return ask("PUT", docsPath(place, id), {
    query: { encoding: "base64url", ...query },
    body: utf8(value) as Uint8Array<ArrayBuffer>,
  });
}
