// Files for the user's machine.

/** Saves a file where the browser saves files. */
export function save(name: string, content: Blob) {
  const url = URL.createObjectURL(content);
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
