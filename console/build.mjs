// Builds the console into dist/: the files, each plain and compressed, and the table of them that the
// server includes. The same sources and packages give the same bytes.
//
//   npm run build             writes dist/
//   node build.mjs --check    builds and compares with dist/, byte for byte
//
// Compressed files are compared by their content, because compressors differ from version to version.

import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";
import { build } from "esbuild";

const root = dirname(fileURLToPath(import.meta.url));
const dist = join(root, "dist");
const COMPRESSED_BYTES_MAX = 300_000;

const TYPES = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
  txt: "text/plain; charset=utf-8",
};

/** Packages whose code is in the bundle. */
const BUNDLED = ["preact", "uplot"];

const hashOf = (content) => createHash("sha256").update(content).digest("hex").slice(0, 16);

async function bundle(entry) {
  const result = await build({
    entryPoints: [join(root, entry)],
    absWorkingDir: root,
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: ["chrome109", "firefox115", "safari16.4"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "inline",
    charset: "utf8",
  });
  return Buffer.from(result.outputFiles[0].contents);
}

/** The files by name, with those whose name has a hash. */
export async function assemble() {
  const named = new Map();
  const hashed = async (stem, extension, content) => {
    const name = `${stem}-${hashOf(content)}.${extension}`;
    named.set(name, { content, immutable: true });
    return name;
  };
  const script = await hashed("app", "js", await bundle("src/main.tsx"));
  const style = await hashed("app", "css", await bundle("src/style.css"));
  const icon = await hashed("icon", "svg", await readFile(join(root, "src/icon.svg")));
  const page = (await readFile(join(root, "src/index.html"), "utf8"))
    .replace("SCRIPT", script)
    .replace("STYLE", style)
    .replace("ICON", icon);
  const notices = BUNDLED.map(async (name) => {
    const text = await readFile(join(root, "node_modules", name, "LICENSE"), "utf8");
    return `${name}\n\n${text.trim()}\n`;
  });
  const notice = (await Promise.all(notices)).join("\n\n");
  named.set("worker.js", { content: await bundle("src/worker.ts"), immutable: false });
  named.set("licenses.txt", { content: Buffer.from(notice), immutable: false });
  named.set("index.html", { content: Buffer.from(page), immutable: false });
  return named;
}

function table(named) {
  const rows = [...named].map(([name, { content, immutable }]) => {
    const file = (suffix) =>
      `include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../console/dist/${name}${suffix}"))`;
    return `    Asset {
        name: "${name}",
        content_type: "${TYPES[name.split(".").pop()]}",
        etag: "\\"${hashOf(content)}\\"",
        is_immutable: ${immutable},
        plain: ${file("")},
        gzip: ${file(".gz")},
    },`;
  });
  return `// Written by console/build.mjs; do not edit.
const ASSETS: &[Asset] = &[
${rows.join("\n")}
];
`;
}

/** What dist/ has to hold. */
async function files() {
  const named = await assemble();
  const all = new Map();
  let compressed = 0;
  for (const [name, { content }] of named) {
    const zipped = gzipSync(content, { level: 9 });
    // The byte that names the system is no part of the content.
    zipped[9] = 0xff;
    compressed += zipped.length;
    all.set(name, content).set(`${name}.gz`, zipped);
  }
  all.set("assets.in", Buffer.from(table(named)));
  if (compressed > COMPRESSED_BYTES_MAX) {
    throw new Error(`the console has ${compressed} compressed bytes, ${COMPRESSED_BYTES_MAX} are allowed`);
  }
  return { all, compressed };
}

async function check(all) {
  const present = new Set(await readdir(dist));
  const wrong = [];
  for (const [name, content] of all) {
    const kept = present.delete(name) ? await readFile(join(dist, name)) : Buffer.alloc(0);
    const same = name.endsWith(".gz")
      ? kept.length > 0 && gunzipSync(kept).equals(gunzipSync(content))
      : kept.equals(content);
    if (!same) wrong.push(name);
  }
  wrong.push(...present);
  if (wrong.length > 0) {
    throw new Error(`dist/ is not what the sources give, run \`npm run build\`: ${wrong.join(", ")}`);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { all, compressed } = await files();
  if (process.argv.includes("--check")) {
    await check(all);
  } else {
    await rm(dist, { recursive: true, force: true });
    await mkdir(dist, { recursive: true });
    await Promise.all([...all].map(([name, content]) => writeFile(join(dist, name), content)));
  }
  console.log(`${all.size} files, ${compressed} compressed bytes`);
}
