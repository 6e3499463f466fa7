// Serves the console from its sources, built again for each page load, in front of a running server.
//
//   npm run dev [-- PORT [SERVER_PORT]]      http://localhost:8100/console/ in front of port 8091
//
// For work on the console only. The server itself serves what is in the binary.

import { createServer, request } from "node:http";
import { assemble } from "./build.mjs";

const TYPES = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml", txt: "text/plain" };

/** Starts it; the port that it listens on. */
export async function serve(port, serverPort) {
  let named = await assemble();
  const server = createServer(async (asked, answer) => {
    const name = /^\/console\/([^?]*)/.exec(asked.url)?.[1];
    if (name === "") named = await assemble();
    const file = name === undefined ? undefined : named.get(name || "index.html");
    if (file) {
      const type = TYPES[(name || "index.html").split(".").pop()];
      answer.writeHead(200, { "Content-Type": `${type}; charset=utf-8` }).end(file.content);
      return;
    }
    const { method, url, headers } = asked;
    const passed = request({ host: "127.0.0.1", port: serverPort, method, path: url, headers }, (reply) => {
      answer.writeHead(reply.statusCode, reply.headers);
      reply.pipe(answer);
    });
    passed.on("error", () => answer.destroy());
    answer.on("close", () => passed.destroy());
    asked.pipe(passed);
  });
  await new Promise((listening) => server.listen(port, "127.0.0.1", listening));
  return server;
}

if (process.argv[1]?.endsWith("dev.mjs")) {
  const [port = "8100", serverPort = "8091"] = process.argv.slice(2);
  await serve(Number(port), Number(serverPort));
  console.log(`http://localhost:${port}/console/ in front of port ${serverPort}`);
}
