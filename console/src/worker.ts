// The keeper of a login while its tab is loaded again: a service worker, because it outlives the page
// and has a memory that no other site reads.
//
// Owns: credentials, in memory, for seconds, under a random name that only their tab knows. It writes
// nothing to the disk and sees no request of the page. `reload.ts` talks to it.

interface Kept {
  tab: string;
  /** Left out by a tab that takes its credentials back. */
  credentials?: string;
}

interface MessageToWorker extends MessageEvent<Kept> {
  waitUntil(work: Promise<unknown>): void;
}

const KEPT_MS = 30_000;
const TABS_MAX = 32;

const kept = new Map<string, string>();

/** The tab that was left first makes space. */
function keep(tab: string, credentials: string) {
  kept.set(tab, credentials);
  const [first] = kept.keys();
  if (kept.size > TABS_MAX && first !== undefined) kept.delete(first);
  return new Promise<void>((ended) => setTimeout(() => (kept.delete(tab), ended()), KEPT_MS));
}

addEventListener("message", (event) => {
  const { data, ports, waitUntil } = event as MessageToWorker;
  if (data.credentials !== undefined) return waitUntil.call(event, keep(data.tab, data.credentials));
  ports[0]?.postMessage(kept.get(data.tab) ?? null);
  kept.delete(data.tab);
});

// A newer console does not wait until all tabs of the older one are closed.
addEventListener("install", () => (globalThis as unknown as { skipWaiting(): void }).skipWaiting());
