// Numbers, times and JSON as people read them.

export const count = (value: number) => Math.round(value).toLocaleString("en-US");

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let rest = value;
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${Number.isInteger(rest) || rest >= 100 ? Math.round(rest) : rest.toFixed(1)} ${units[unit]}`;
}

export function duration(us: number): string {
  if (!Number.isFinite(us)) return "–";
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 10_000 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(1)} s`;
}

export function age(seconds: number): string {
  const days = Math.floor(seconds / 86400);
  const hours = Math.floor((seconds % 86400) / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

export const time = (unixMs: number) => new Date(unixMs).toLocaleString("sv-SE");

/** A length of time in words that lose nothing: the largest unit that divides it. */
export function period(seconds: number): string {
  const units: [number, string][] = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
  ];
  const [length, name] = units.find(([length]) => seconds > 0 && seconds % length === 0) ?? [1, "s"];
  return `${count(seconds / length)} ${name}`;
}

/** An expiry in UNIX seconds. */
export const expiry = (unixS: number) => (unixS === 0 ? "never" : time(unixS * 1000));

/** JSON with other white space; every token stays as it is, so that no number loses a digit. */
export function respaced(json: string, indent: number): string {
  let out = "";
  let depth = 0;
  let inText = false;
  const line = () => (indent > 0 ? "\n" + " ".repeat(depth * indent) : "");
  for (let at = 0; at < json.length; at++) {
    const char = json[at]!;
    if (inText) {
      out += char;
      if (char === "\\") out += json[++at] ?? "";
      else if (char === '"') inText = false;
    } else if (char === '"') {
      inText = true;
      out += char;
    } else if (char === "{" || char === "[") {
      const closing = /^\s*[}\]]/.exec(json.slice(at + 1, at + 64));
      if (closing) {
        out += char + closing[0].trim();
        at += closing[0].length;
      } else {
        depth += 1;
        out += char + line();
      }
    } else if (char === "}" || char === "]") {
      depth -= 1;
      out += line() + char;
    } else if (char === ",") out += char + line();
    else if (char === ":") out += indent > 0 ? ": " : ":";
    else if (!/\s/.test(char)) out += char;
  }
  return out;
}

/** Why a text is no JSON; `undefined` when it is. */
export function jsonError(text: string): string | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** The value below which a part of the times of a histogram lies, in microseconds. */
export function percentile(classes: number[], part: number): number {
  const total = classes.reduce((sum, inClass) => sum + inClass, 0);
  if (total === 0) return NaN;
  let seen = 0;
  for (let index = 0; index < classes.length; index++) {
    const inClass = classes[index]!;
    if (seen + inClass >= total * part) {
      const within = inClass === 0 ? 0 : (total * part - seen) / inClass;
      return 2 ** index * (1 + within);
    }
    seen += inClass;
  }
  return 2 ** classes.length;
}
