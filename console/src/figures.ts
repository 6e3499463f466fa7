// The figures of the node and its buckets, and what follows from two of them: rates and percentiles.
//
// Owns: the history of the last minutes, bounded. The server keeps one, with which the overview opens;
// while the overview is shown, each answer adds a point. Sums over all buckets have the name `ALL`.

import { get } from "./api";
import { percentile } from "./format";

/** What is drawn of a bucket, as the server keeps it of each moment. */
export interface BucketSample {
  name: string;
  operations: Record<string, number>;
  latencies: { get: number[]; store: number[] };
  memory: { used_bytes: number };
  queue_items: number;
  disk_bytes: number;
  changes: { lag_s: number };
}

interface Sample {
  unix_ms: number;
  buckets: BucketSample[];
}

export interface BucketFigures extends BucketSample {
  memory: { used_bytes: number; quota_bytes: number };
  items: number;
  items_evicted: number;
  items_dense: number;
  fetches: number;
  queue_bytes: number;
  warmup_done: boolean;
  refuses_writes: boolean;
  changes: { streams: number; lag_s: number };
}

export interface Figures extends Sample {
  uptime_s: number;
  node?: { workers: number; connections: number; rejected_connections: number };
  buckets: BucketFigures[];
  /** Moments before this one, oldest first, when they are asked for. */
  history?: Sample[];
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
  memory: number | null;
  disk: number | null;
  queue: number | null;
  lag: number | null;
}

export const ALL = "";

const SPAN_S = 360;

const history = new Map<string, Point[]>();
let latest: Sample | undefined;

export const pointsOf = (bucket: string): Point[] => history.get(bucket) ?? [];

const sum = (numbers: number[]) => numbers.reduce((total, number) => total + number, 0);

function sumsOf(counts: Record<string, number>[]): Record<string, number> {
  const total: Record<string, number> = {};
  for (const one of counts) for (const [name, count] of Object.entries(one)) total[name] = (total[name] ?? 0) + count;
  return total;
}

/** Sums by place in an array. */
const classSums = (all: number[][]) => (all[0] ?? []).map((_, at) => sum(all.map((classes) => classes[at] ?? 0)));

/** All buckets as if they were one. */
function summed(buckets: BucketSample[]): BucketSample {
  return {
    name: ALL,
    operations: sumsOf(buckets.map((of) => of.operations)),
    latencies: {
      get: classSums(buckets.map((of) => of.latencies.get)),
      store: classSums(buckets.map((of) => of.latencies.store)),
    },
    memory: { used_bytes: sum(buckets.map((of) => of.memory.used_bytes)) },
    queue_items: sum(buckets.map((of) => of.queue_items)),
    disk_bytes: sum(buckets.map((of) => of.disk_bytes)),
    changes: { lag_s: Math.max(0, ...buckets.map((of) => of.changes.lag_s)) },
  };
}

/** All figures of all buckets as if they were one. */
export function total(buckets: BucketFigures[]): BucketFigures {
  const of = (figure: (bucket: BucketFigures) => number) => sum(buckets.map(figure));
  const { changes, memory, ...sample } = summed(buckets);
  return {
    ...sample,
    memory: { ...memory, quota_bytes: of((bucket) => bucket.memory.quota_bytes) },
    items: of((bucket) => bucket.items),
    items_evicted: of((bucket) => bucket.items_evicted),
    items_dense: of((bucket) => bucket.items_dense),
    fetches: of((bucket) => bucket.fetches),
    queue_bytes: of((bucket) => bucket.queue_bytes),
    warmup_done: buckets.every((bucket) => bucket.warmup_done),
    refuses_writes: buckets.some((bucket) => bucket.refuses_writes),
    changes: { ...changes, streams: of((bucket) => bucket.changes.streams) },
  };
}

const known = (value: number) => (Number.isFinite(value) ? value : null);

/** What is known of one moment alone. */
const levels = (time: number, of: BucketSample): Point => ({
  ...nothing(time),
  memory: of.memory.used_bytes,
  disk: of.disk_bytes,
  queue: of.queue_items,
  lag: of.changes.lag_s,
});

const nothing = (time: number): Point => ({
  time,
  reads: null,
  writes: null,
  hits: null,
  p50: null,
  p99: null,
  storeP99: null,
  memory: null,
  disk: null,
  queue: null,
  lag: null,
});

/** What follows from two moments; nothing if the counts are smaller, as after a restart. */
function rates(of: BucketSample, before: BucketSample, seconds: number): Partial<Point> {
  const since = (name: string) => (of.operations[name] ?? 0) - (before.operations[name] ?? 0);
  if (seconds <= 0 || since("cmd_get") < 0 || since("cmd_set") < 0) return {};
  const rate = (...names: string[]) => sum(names.map(since)) / seconds;
  const latency = (kind: "get" | "store", part: number) => {
    const classes = of.latencies[kind].map((inClass, at) => inClass - (before.latencies[kind][at] ?? 0));
    return known(percentile(classes, part));
  };
  const [hits, misses] = [since("get_hits"), since("get_misses")];
  return {
    reads: rate("cmd_get"),
    writes: rate("cmd_set", "delete_hits", "cmd_touch"),
    hits: known((100 * hits) / (hits + misses)),
    p50: latency("get", 0.5),
    p99: latency("get", 0.99),
    storeP99: latency("store", 0.99),
  };
}

function add(bucket: string, point: Point) {
  const oldest = point.time - SPAN_S;
  history.set(bucket, [...pointsOf(bucket).filter(({ time }) => time >= oldest && time < point.time), point]);
}

/** Adds a moment to the history of each bucket and of all. */
function record(now: Sample) {
  const time = now.unix_ms / 1000;
  const seconds = (now.unix_ms - (latest?.unix_ms ?? 0)) / 1000;
  const pairs = now.buckets.flatMap((of) => {
    const before = latest?.buckets.find(({ name }) => name === of.name);
    add(of.name, { ...levels(time, of), ...(before && rates(of, before, seconds)) });
    return before ? [{ of, before }] : [];
  });
  // A bucket that is new or gone does not count in rates over all.
  const [of, before] = [summed(pairs.map(({ of }) => of)), summed(pairs.map(({ before }) => before))];
  add(ALL, { ...levels(time, summed(now.buckets)), ...(pairs.length > 0 && rates(of, before, seconds)) });
  latest = now;
}

/** Asks for the figures and adds them to the history; on request, moments that the server kept, too. */
export async function look(withHistory: boolean): Promise<Figures> {
  const now = await get<Figures>("/node/figures", { history: withHistory ? 1 : undefined });
  const from = pointsOf(ALL).at(-1)?.time ?? 0;
  for (const sample of now.history ?? []) if (sample.unix_ms / 1000 > from) record(sample);
  record(now);
  for (const name of history.keys()) {
    if (name !== ALL && !now.buckets.some((bucket) => bucket.name === name)) history.delete(name);
  }
  return now;
}

/** The server does not answer: lines break off here. */
export function breakOff() {
  for (const [bucket, points] of history) {
    const last = points.at(-1);
    if (last && last.memory !== null) history.set(bucket, [...points, nothing(last.time + 0.001)]);
  }
}

export function forget() {
  history.clear();
  latest = undefined;
}
