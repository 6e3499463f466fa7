// Streams of lines: text as it arrives, and rows of JSON without loss of digits.

/** The lines of a body, until it ends. */
export async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>;
  const reader = body.pipeThrough(decoder).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop() ?? "";
      yield* parts;
    }
    if (rest !== "") yield rest;
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The elements of a JSON array as text; texts without their quotes, `null` as such. */
export function cells(array: string): (string | null)[] {
  const found: (string | null)[] = [];
  let [depth, start, inText] = [0, 1, false];
  const push = (end: number) => {
    const raw = array.slice(start, end).trim();
    if (raw === "") return;
    if (raw === "null") found.push(null);
    else found.push(raw.startsWith('"') ? (JSON.parse(raw) as string) : raw);
  };
  for (let at = 1; at < array.length; at++) {
    const char = array[at];
    if (inText) {
      if (char === "\\") at += 1;
      else if (char === '"') inText = false;
    } else if (char === '"') inText = true;
    else if (char === "[" || char === "{") depth += 1;
    else if (depth === 0 && (char === "," || char === "]")) {
      push(at);
      start = at + 1;
    } else if (char === "]" || char === "}") depth -= 1;
  }
  return found;
}
