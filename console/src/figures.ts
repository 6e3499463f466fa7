// The figures of the node and its buckets, and what follows from two of them: rates and percentiles.
//
// Owns: the history of the last minutes, bounded, which goes on while other pages are shown only as
// far as somebody asks.

import { get } from "./api";
import { percentile } from "./format";

export interface BucketFigures {
  name: string;
  type: string;
  operations: Record<string, number>;
  latencies: { get: number[]; store: number[] };
  memory: {
    used_bytes: number;
    quota_bytes: number;
    low_watermark_bytes: number;
    high_watermark_bytes: number;
  };
  items: number;
  items_resident: number;
  items_evicted: number;
  fetches: number;
  queue_items: number;
  queue_bytes: number;
  disk_bytes: number;
  warmup_done: boolean;
  refuses_writes: boolean;
  vbuckets_active: number;
  vbuckets: number;
  changes: { connections: number; streams: number; items_remaining: number; lag_s: number };
}

export interface Figures {
  unix_ms: number;
  uptime_s: number;
  node?: {
    workers: number;
    connections: number;
    rejected_connections: number;
    commands: number;
    bytes_read: number;
    bytes_written: number;
    logins_failed: number;
  };
  buckets: BucketFigures[];
}

/** What is drawn of one moment; `null` where nothing is known. */
export interface Point {
  time: number;
  reads: number | null;
  writes: number | null;
  hits: number | null;
  p50: number | null;
  p99: number | null;
  storeP99: number | null;
  memory: number;
  disk: number;
  queue: number;
  lag: number;
}

const POINTS_MAX = 180;

const history = new Map<string, Point[]>();
let latest: Figures | undefined;

export const pointsOf = (bucket: string): Point[] => history.get(bucket) ?? [];

const known = (value: number) => (Number.isFinite(value) ? value : null);

function point(now: Figures, of: BucketFigures, before?: BucketFigures, beforeMs = 0): Point {
  const seconds = (now.unix_ms - beforeMs) / 1000;
  const since = (name: string) => (of.operations[name] ?? 0) - (before?.operations[name] ?? 0);
  // After a restart all counts are smaller.
  const usable = before !== undefined && seconds > 0 && since("cmd_get") >= 0 && since("cmd_set") >= 0;
  const rate = (...names: string[]) =>
    usable ? names.reduce((sum, name) => sum + since(name), 0) / seconds : null;
  const classes = (kind: "get" | "store") =>
    of.latencies[kind].map((inClass, at) => inClass - (before?.latencies[kind][at] ?? 0));
  const latency = (kind: "get" | "store", part: number) =>
    usable ? known(percentile(classes(kind), part)) : null;
  const [hits, misses] = [since("get_hits"), since("get_misses")];
  return {
    time: now.unix_ms / 1000,
    reads: rate("cmd_get"),
    writes: rate("cmd_set", "delete_hits", "cmd_touch"),
    hits: usable ? known((100 * hits) / (hits + misses)) : null,
    p50: latency("get", 0.5),
    p99: latency("get", 0.99),
    storeP99: latency("store", 0.99),
    memory: of.memory.used_bytes,
    disk: of.disk_bytes,
    queue: of.queue_items,
    lag: of.changes.lag_s,
  };
}

/** Asks for the figures and adds a point to the history of each bucket. */
export async function look(signal?: AbortSignal): Promise<Figures> {
  const now = await get<Figures>("/node/figures", {}, signal);
  for (const of of now.buckets) {
    const before = latest?.buckets.find((bucket) => bucket.name === of.name);
    const points = [...pointsOf(of.name), point(now, of, before, latest?.unix_ms)];
    history.set(of.name, points.slice(-POINTS_MAX));
  }
  for (const name of history.keys()) {
    if (!now.buckets.some((bucket) => bucket.name === name)) history.delete(name);
  }
  latest = now;
  return now;
}

export function forget() {
  history.clear();
  latest = undefined;
}
