// Small charts of the last minutes.
//
// Owns: the drawing area, its size and its scale. A chart is drawn again when its data change and at no
// other time. The newest value follows the title as text, because a canvas says nothing to a screen
// reader.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

export interface Line {
  label: string;
  values: (number | null)[];
}

interface ChartProps {
  title: string;
  times: number[];
  lines: Line[];
  /** The scale goes this high at least. */
  top: number;
  /** The scale goes this high at most. */
  most?: number;
  /** Ticks are at multiples of powers of two, because the values are bytes. */
  isBinary?: boolean;
  show: (value: number) => string;
}

const HEIGHT = 132;
const SPAN_MIN_S = 60;
const clock = (unixS: number) => new Date(unixS * 1000).toLocaleTimeString("sv-SE");
/** Steps between ticks that all units show without rounding. */
const POWERS_OF_TWO = Array.from({ length: 50 }, (_, power) => 2 ** power);
const DECADES = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const DECIMAL = [0.1, 0.2, 0.5, ...DECADES];
const COLOURS = ["--line-1", "--line-2", "--line-3"];

export function Chart({ title, times, lines, top, most = Infinity, isBinary, show }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = `${document.documentElement.dataset["theme"]}/${isDark}`;
  useEffect(() => {
    const colour = (name: string) => {
      // The canvas needs the colour itself, not the expression that gives it.
      place.current!.style.color = `var(${name})`;
      return getComputedStyle(place.current!).color;
    };
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { show: false } };
    const made = new uPlot(
      {
        width: place.current!.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          // From the data, because uPlot takes a single point for a day.
          x: {
            range: ({ data: [times] }) => {
              const last = times[times.length - 1] ?? 0;
              return [Math.min(times[0] ?? 0, last - SPAN_MIN_S), last];
            },
          },
          y: { range: (_plot, _low, high) => [0, Math.min(Math.max((high ?? 0) * 1.1, top), most)] },
        },
        axes: [
          { ...axis, size: 24, space: 70, values: (_plot, values) => values.map(clock) },
          {
            ...axis,
            size: 66,
            space: 22,
            incrs: isBinary ? POWERS_OF_TWO : DECIMAL,
            values: (_plot, values) => values.map((value) => show(value)),
          },
        ],
        series: [
          {},
          ...lines.map((line, index) => ({
            label: line.label,
            stroke: colour(COLOURS[index % COLOURS.length]!),
            width: 1.5,
            points: { show: false },
            spanGaps: false,
          })),
        ],
      },
      [times, ...lines.map((line) => line.values)],
      place.current!,
    );
    plot.current = made;
    const watched = new ResizeObserver(() => {
      const width = place.current?.clientWidth ?? 0;
      if (width > 0 && width !== made.width) made.setSize({ width, height: HEIGHT });
    });
    watched.observe(place.current!);
    return () => {
      watched.disconnect();
      made.destroy();
    };
  }, [lines.length, theme]);
  useEffect(() => {
    plot.current?.setData([times, ...lines.map((line) => line.values)]);
  }, [times]);
  const last = (line: Line) => line.values[line.values.length - 1];
  return (
    <figure class="chart">
      <figcaption>
        <strong>{title}</strong>
        {lines.map((line, index) => {
          const value = last(line);
          return (
            <span class="key" key={line.label}>
              <i class={`swatch line-${(index % COLOURS.length) + 1}`} aria-hidden="true" />
              {line.label} <b>{value == null ? "–" : show(value)}</b>
            </span>
          );
        })}
      </figcaption>
      <div ref={place} class="plot" aria-hidden="true" />
    </figure>
  );
}
