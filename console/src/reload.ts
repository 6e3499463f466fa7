// A login outlives a reload of its page, where the browser has service workers: with TLS, or on
// localhost.
//
// Owns: the hand-over. The page that is left gives its credentials to `worker.ts`, and the next page in
// the same tab takes them back. The tab's storage has only the random name under which they wait.

import { credentials } from "./api";

const TAB = "oribi-console-tab";
const WORKER = "/console/worker.js";
/** A worker always answers, late on a busy machine: this only bounds the wait for a broken one. */
const ANSWER_MS = 15_000;

let keeper: ServiceWorkerRegistration | undefined;

/** Starts the worker, so that it runs when the page is left. */
export async function prepare() {
  try {
    keeper ??= await navigator.serviceWorker?.register(WORKER);
  } catch {
    // The browser refuses, as with a certificate that it does not trust. A reload then logs out.
  }
}

addEventListener("pagehide", () => {
  const login = credentials();
  if (login === null || !keeper?.active) return;
  const tab = crypto.randomUUID();
  sessionStorage.setItem(TAB, tab);
  keeper.active.postMessage({ tab, credentials: login });
});

/** True when the page before this one in the tab may have left a login. */
export const mayResume = () => sessionStorage.getItem(TAB) !== null;

/** The login that the page before this one left; `null` without one. */
export async function takeLogin(): Promise<string | null> {
  const tab = sessionStorage.getItem(TAB);
  sessionStorage.removeItem(TAB);
  const worker = tab && (await navigator.serviceWorker?.getRegistration(WORKER))?.active;
  if (!worker) return null;
  const { port1, port2 } = new MessageChannel();
  const answer = new Promise<string | null>((resolve) => {
    port1.onmessage = (event) => resolve(event.data as string | null);
    setTimeout(() => resolve(null), ANSWER_MS);
  });
  worker.postMessage({ tab }, [port2]);
  return answer.finally(() => port1.close());
}
