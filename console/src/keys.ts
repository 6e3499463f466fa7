// Keys of documents: as the server's paths name them, and as people read them.
//
// A key is bytes. Most keys are UTF-8; of the others, and of characters that a terminal or a browser
// would not show, the reader sees escapes: `\xff`, `\u{202e}`.

export function base64(bytes: Uint8Array): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

export const utf8 = (text: string) => new TextEncoder().encode(text);

/** The form in which paths and queries name keys. */
export const keyId = (text: string) =>
  base64(utf8(text)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

function keyBytes(id: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    const binary = atob(id.replaceAll("-", "+").replaceAll("_", "/"));
    return Uint8Array.from(binary, (char) => char.charCodeAt(0));
  } catch {
    return undefined;
  }
}

const strictly = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function decoded(bytes: Uint8Array<ArrayBuffer>): string | undefined {
  try {
    return strictly.decode(bytes);
  } catch {
    return undefined;
  }
}

const hex = (value: number, digits: number) => value.toString(16).padStart(digits, "0");

function escaped(char: string): string {
  const code = char.codePointAt(0)!;
  return code < 0x80 ? `\\x${hex(code, 2)}` : `\\u{${hex(code, 4)}}`;
}

/** Control and format characters, which change how the text around them looks. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

const seen = (text: string) => text.replace(UNSEEN, escaped);

/** The bytes of the character that begins at `from`, at most four; 1 when none begins there. */
function characterAt(bytes: Uint8Array<ArrayBuffer>, from: number): string | number {
  for (let length = 1; length <= 4 && from + length <= bytes.length; length++) {
    const char = decoded(bytes.subarray(from, from + length));
    if (char !== undefined) return char;
  }
  return bytes[from]!;
}

/** True when the key is UTF-8. */
export function isText(id: string): boolean {
  const bytes = keyBytes(id);
  return bytes !== undefined && decoded(bytes) !== undefined;
}

/** The key for people: text as it is, anything else as escapes. */
export function keyLabel(id: string): string {
  const bytes = keyBytes(id);
  if (bytes === undefined) return id;
  const text = decoded(bytes);
  if (text !== undefined) return seen(text);
  let label = "";
  for (let at = 0; at < bytes.length; ) {
    const char = characterAt(bytes, at);
    label += typeof char === "number" ? `\\x${hex(char, 2)}` : seen(char);
    at += typeof char === "number" ? 1 : utf8(char).length;
  }
  return label;
}
