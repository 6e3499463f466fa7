// The overview: what the node does now, for all buckets or one, and the last minutes as charts.

import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import type { ApiError } from "../api";
import { go, link, useApp, type Route } from "../app";
import { Chart } from "../chart";
import { ALL, breakOff, look, pointsOf, total, type BucketFigures, type Figures, type Point } from "../figures";
import { age, bytes, count, duration, time } from "../format";
import { isAdmin } from "../rights";
import { Cell, Row, Table } from "../table";
import { Busy, Failure, LastKnown, Meter, SelectField, asApiError, useTicks } from "../ui";

const EVERY_MS = 2000;
/** While nothing happens, so that a forgotten page costs next to nothing. */
const QUIET_EVERY_MS = 10_000;
const QUIET_AFTER = 5;
const MIB = 2 ** 20;

/** So often a page draws on which nothing changes, but the time. */
const REDRAW_MS = 60_000;

const perSecond = (value: number) => `${count(value)}/s`;
const seconds = (value: number) => `${value < 10 ? Math.round(value * 10) / 10 : count(value)} s`;
const percent = (value: number) => {
  const digits = Number.isInteger(value) || (value >= 10 && value <= 99.9) ? 0 : 1;
  return `${value.toFixed(digits)} %`;
};

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
      <Tile
        label="Documents"
        value={count(bucket.items)}
        more={`${count(bucket.items_dense)} dense, ${count(bucket.items_evicted)} evicted`}
      />
      <Tile label="Memory" value={bytes(memory.used_bytes)} more={`of ${bytes(memory.quota_bytes)}`}>
        <Meter label="Memory in use" value={memory.used_bytes} max={memory.quota_bytes} />
      </Tile>
      <Tile label="Flush queue" value={count(bucket.queue_items)} more={bytes(bucket.queue_bytes)} />
      <Tile label="Disk" value={bytes(bucket.disk_bytes)} more={`${count(bucket.fetches)} fetches`} />
      <Tile
        label="Change streams"
        value={count(bucket.changes.streams)}
        more={`${seconds(bucket.changes.lag_s)} lag at most`}
      />
      {figures.node && (
        <Tile
          label="Connections"
          value={count(figures.node.connections)}
          more={`${count(figures.node.rejected_connections)} refused`}
        />
      )}
      <Tile
        label="Up"
        value={age(figures.uptime_s)}
        more={figures.node && `${count(figures.node.workers)} worker thread(s)`}
      />
    </dl>
  );
}

function BucketTable({ buckets }: { buckets: BucketFigures[] }) {
  const columns = ["Reads", "Writes", "Hit ratio", "GET, 99 %", "Documents"];
  return (
    <Table
      caption="Figures of each bucket"
      columns={[
        "Bucket",
        ...columns.map((name): [string, "number"] => [name, "number"]),
        "Memory",
        ["Queue", "number"],
        ["Disk", "number"],
      ]}
      stacks
    >
      {buckets.map(({ name, items, memory, queue_items: queue, disk_bytes: disk }) => {
        const point = pointsOf(name).at(-1);
        const cell = (label: string, text: string) => (
          <Cell label={label} kind="number">
            {text}
          </Cell>
        );
        return (
          <Row key={name} name={<a href={link("overview", [name])}>{name}</a>}>
            {cell("Reads", shown(point?.reads, perSecond))}
            {cell("Writes", shown(point?.writes, perSecond))}
            {cell("Hit ratio", shown(point?.hits, percent))}
            {cell("GET, 99 %", shown(point?.p99, duration))}
            {cell("Documents", count(items))}
            <Cell label="Memory">
              <Meter label={`Memory of ${name}`} value={memory.used_bytes} max={memory.quota_bytes} />
              <small class="nowrap">
                {bytes(memory.used_bytes)} of {bytes(memory.quota_bytes)}
              </small>
            </Cell>
            {cell("Queue", count(queue))}
            {cell("Disk", bytes(disk))}
          </Row>
        );
      })}
    </Table>
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
      <Chart title="Hit ratio" times={times} lines={[line("hits", (p) => p.hits)]} top={100} most={100} show={percent} />
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
      <Chart title="Memory" times={times} lines={[line("used", (p) => p.memory)]} top={MIB} isBinary show={bytes} />
      <Chart title="Flush queue" times={times} lines={[line("mutations", (p) => p.queue)]} top={10} show={count} />
      <Chart title="Lag of change streams" times={times} lines={[line("longest", (p) => p.lag)]} top={1} show={seconds} />
      <Chart title="Disk" times={times} lines={[line("files", (p) => p.disk)]} top={MIB} isBinary show={bytes} />
    </div>
  );
}

function Warnings({ bucket }: { bucket: BucketFigures }) {
  const isFull = bucket.memory.used_bytes >= bucket.memory.quota_bytes * 0.98;
  const { name } = bucket;
  return (
    <>
      {bucket.refuses_writes && (
        <p class="failure">The store of {name} fails, and writes are refused. The log of the server says why.</p>
      )}
      {!bucket.warmup_done && <Busy text={`The bucket ${name} loads its documents.`} />}
      {isFull && <p class="failure">The memory quota of {name} is nearly used up.</p>}
    </>
  );
}

/** The figures while the page is visible, and why there are no newer ones. */
function useFigures(): { figures?: Figures; error?: ApiError } {
  const [figures, setFigures] = useState<Figures>();
  const [error, setError] = useState<ApiError>();
  const last = useRef({ isFirst: true, sameLooks: 0, text: "", drawnMs: 0 });
  useTicks(async () => {
    const { isFirst, text: before, drawnMs, sameLooks } = last.current;
    try {
      const figures = await look(isFirst);
      const text = JSON.stringify([figures.buckets, figures.node]);
      const same = text === before ? sameLooks + 1 : 0;
      // The charts of an idle server only move, and that costs more than all else.
      const draws = error !== undefined || same < QUIET_AFTER || performance.now() - drawnMs >= REDRAW_MS;
      last.current = { isFirst: false, sameLooks: same, text, drawnMs: draws ? performance.now() : drawnMs };
      if (draws) {
        setFigures(figures);
        setError(undefined);
      }
      return same >= QUIET_AFTER ? QUIET_EVERY_MS : EVERY_MS;
    } catch (failure) {
      breakOff();
      setError(asApiError(failure));
      return EVERY_MS;
    }
  });
  return { figures, error };
}

function View({ figures, chosen }: { figures: Figures; chosen?: BucketFigures }) {
  const { buckets } = figures;
  const shown = chosen ?? (buckets.length > 1 ? undefined : buckets[0]);
  const watched = shown ? [shown] : buckets;
  const points = pointsOf(shown?.name ?? ALL);
  return (
    <>
      {watched.map((bucket) => (
        <Warnings bucket={bucket} key={bucket.name} />
      ))}
      <Tiles figures={figures} bucket={shown ?? total(buckets)} point={points.at(-1)} />
      {!shown && <BucketTable buckets={buckets} />}
      <Charts points={points} />
    </>
  );
}

export function OverviewPage({ route }: { route: Route }) {
  const { user } = useApp();
  const { figures, error } = useFigures();
  const [name] = route.parts;
  const buckets = figures?.buckets ?? [];
  const chosen = buckets.find((bucket) => bucket.name === name);
  return (
    <>
      <div class="heading">
        <h1>Overview</h1>
        {(buckets.length > 1 || name) && (
          <SelectField
            label="Bucket"
            value={chosen?.name ?? ALL}
            options={[[ALL, "All buckets"], ...buckets.map(({ name }) => name)]}
            change={(name) => go(link("overview", name === ALL ? [] : [name]))}
          />
        )}
      </div>
      <Failure error={error} more={figures && `These figures are of ${time(figures.unix_ms)}.`} />
      {!figures && !error && <Busy />}
      {figures && buckets.length === 0 && (
        <p>
          {isAdmin(user)
            ? "There is no bucket yet. Create one on the page Buckets."
            : "Your user has no right to see the figures of a whole bucket (simple-stats)."}
        </p>
      )}
      {figures && name && !chosen && <p role="alert">There is no bucket {name}, or none that you may watch.</p>}
      {figures && buckets.length > 0 && (chosen || !name) && (
        <LastKnown error={error}>
          <View figures={figures} chosen={chosen} />
        </LastKnown>
      )}
    </>
  );
}
