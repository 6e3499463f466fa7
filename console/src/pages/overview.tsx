// The overview: what the node does now, per bucket, and the last minutes as charts.

import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { useApp } from "../app";
import { Chart } from "../chart";
import { look, pointsOf, type BucketFigures, type Figures, type Point } from "../figures";
import { age, bytes, count, duration } from "../format";
import { isAdmin } from "../rights";
import { Busy, Failure, Meter, SelectField, asApiError, useTicks } from "../ui";
import type { ApiError } from "../api";

const EVERY_MS = 2000;
/** While nothing happens, so that a forgotten page costs next to nothing. */
const QUIET_EVERY_MS = 10_000;
const QUIET_AFTER = 5;
const MIB = 2 ** 20;

/** So often a page draws on which nothing changes, but the time. */
const REDRAW_MS = 60_000;

const perSecond = (value: number) => `${count(value)}/s`;
const seconds = (value: number) => `${value < 10 ? Math.round(value * 10) / 10 : count(value)} s`;
const percent = (value: number) => `${value.toFixed(value > 99.9 || value < 10 ? 1 : 0)} %`;

function Tile(props: { label: string; value: string; more?: string; children?: ComponentChildren }) {
  const { label, value, more } = props;
  return (
    <div class="tile">
      <dt>{label}</dt>
      <dd>
        {value}
        {more && <small>{more}</small>}
        {props.children}
      </dd>
    </div>
  );
}

const shown = (value: number | null | undefined, show: (value: number) => string) =>
  value == null ? "–" : show(value);

function Tiles({ figures, bucket, point }: { figures: Figures; bucket: BucketFigures; point?: Point }) {
  const { memory, operations } = bucket;
  const reads = (operations["get_hits"] ?? 0) + (operations["get_misses"] ?? 0);
  const sinceStart = reads > 0 ? percent((100 * (operations["get_hits"] ?? 0)) / reads) : "–";
  return (
    <dl class="tiles">
      <Tile label="Reads" value={shown(point?.reads, perSecond)} />
      <Tile label="Writes" value={shown(point?.writes, perSecond)} />
      <Tile label="Hit ratio" value={shown(point?.hits, percent)} more={`${sinceStart} since the start`} />
      <Tile label="GET, 99 %" value={shown(point?.p99, duration)} more="in the server" />
      <Tile label="Documents" value={count(bucket.items)} more={`${count(bucket.items_evicted)} evicted`} />
      <Tile label="Memory" value={bytes(memory.used_bytes)} more={`of ${bytes(memory.quota_bytes)}`}>
        <Meter label={`Memory of ${bucket.name}`} value={memory.used_bytes} max={memory.quota_bytes} />
      </Tile>
      <Tile label="Flush queue" value={count(bucket.queue_items)} more={bytes(bucket.queue_bytes)} />
      <Tile label="Disk" value={bytes(bucket.disk_bytes)} more={`${count(bucket.fetches)} fetches`} />
      <Tile
        label="Change streams"
        value={count(bucket.changes.streams)}
        more={`${seconds(bucket.changes.lag_s)} behind at most`}
      />
      {figures.node && (
        <Tile
          label="Connections"
          value={count(figures.node.connections)}
          more={`${count(figures.node.rejected_connections)} refused`}
        />
      )}
      <Tile label="Up" value={age(figures.uptime_s)} more={figures.node && `${count(figures.node.workers)} worker thread(s)`} />
    </dl>
  );
}

function Charts({ points }: { points: Point[] }) {
  const times = points.map((point) => point.time);
  const line = (label: string, of: (point: Point) => number | null) => ({ label, values: points.map(of) });
  return (
    <div class="charts">
      <Chart
        title="Operations"
        times={times}
        lines={[line("reads", (p) => p.reads), line("writes", (p) => p.writes)]}
        top={10}
        show={perSecond}
      />
      <Chart title="Hit ratio" times={times} lines={[line("hits", (p) => p.hits)]} top={100} show={percent} />
      <Chart
        title="Latency in the server"
        times={times}
        lines={[
          line("GET 50 %", (p) => p.p50),
          line("GET 99 %", (p) => p.p99),
          line("SET 99 %", (p) => p.storeP99),
        ]}
        top={10}
        show={duration}
      />
      <Chart title="Memory" times={times} lines={[line("used", (p) => p.memory)]} top={MIB} show={bytes} />
      <Chart title="Flush queue" times={times} lines={[line("mutations", (p) => p.queue)]} top={10} show={count} />
      <Chart title="Lag of change streams" times={times} lines={[line("longest", (p) => p.lag)]} top={1} show={seconds} />
      <Chart title="Disk" times={times} lines={[line("files", (p) => p.disk)]} top={MIB} show={bytes} />
    </div>
  );
}

function Warnings({ bucket }: { bucket: BucketFigures }) {
  const isFull = bucket.memory.used_bytes >= bucket.memory.quota_bytes * 0.98;
  return (
    <>
      {bucket.refuses_writes && (
        <p class="failure">The store of this bucket fails, and writes are refused. The log of the server says why.</p>
      )}
      {!bucket.warmup_done && <Busy text="The bucket loads its documents." />}
      {isFull && <p class="failure">The memory quota of this bucket is nearly used up.</p>}
    </>
  );
}

export function OverviewPage() {
  const { user } = useApp();
  const [figures, setFigures] = useState<Figures>();
  const [error, setError] = useState<ApiError>();
  const [chosen, setChosen] = useState("");
  const last = useRef({ sameLooks: 0, text: "", drawnMs: 0 });
  useTicks(async () => {
    try {
      const figures = await look();
      const text = JSON.stringify([figures.buckets, figures.node]);
      const { text: before, drawnMs } = last.current;
      const sameLooks = text === before ? last.current.sameLooks + 1 : 0;
      // The charts of an idle server only move, and that costs more than all else.
      const draws = error !== undefined || sameLooks < QUIET_AFTER || performance.now() - drawnMs >= REDRAW_MS;
      last.current = { sameLooks, text, drawnMs: draws ? performance.now() : drawnMs };
      if (draws) {
        setFigures(figures);
        setError(undefined);
      }
    } catch (failure) {
      setError(asApiError(failure));
    }
    return last.current.sameLooks >= QUIET_AFTER ? QUIET_EVERY_MS : EVERY_MS;
  });
  const bucket = figures?.buckets.find(({ name }) => name === chosen) ?? figures?.buckets[0];
  return (
    <>
      <div class="heading">
        <h1>Overview</h1>
        {figures && figures.buckets.length > 1 && bucket && (
          <SelectField
            label="Bucket"
            value={bucket.name}
            options={figures.buckets.map(({ name }) => name)}
            change={setChosen}
          />
        )}
      </div>
      <Failure error={error} />
      {!figures && !error && <Busy />}
      {figures && !bucket && (
        <p>
          {isAdmin(user)
            ? "There is no bucket yet. Create one on the page Buckets."
            : "Your user has no right to see the figures of a whole bucket (simple-stats)."}
        </p>
      )}
      {figures && bucket && (
        <>
          <Warnings bucket={bucket} />
          <Tiles figures={figures} bucket={bucket} point={pointsOf(bucket.name).at(-1)} />
          <Charts points={pointsOf(bucket.name)} />
        </>
      )}
    </>
  );
}
