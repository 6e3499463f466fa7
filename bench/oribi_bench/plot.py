"""Line charts as SVG: logarithmic axes, one line per series, a bar from minimum to maximum at each point."""

import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 78, 20, 56, 58
# Approximate width of a letter of the axes.
LETTER_WIDTH = 7
COLOURS = ["#0b6e99", "#c2410c", "#4d7c0f", "#7c3aed", "#525252", "#be185d"]
STYLE = ("text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}"
         ".grid{stroke:#ddd}.axis{stroke:#555;fill:none}.line{fill:none;stroke-width:2}")


@dataclass
class Series:
    """Points (x, figure) where a figure has min, median and max; all above 0."""

    name: str
    points: list


@dataclass
class Axis:
    """A logarithmic axis over [low, high]; `texts` are the marks, by their value."""

    label: str
    low: float
    high: float
    texts: dict

    def share(self, value):
        return math.log(value / self.low) / math.log(self.high / self.low)


def decades(values):
    """Marks at 1, 2 and 5 of each decade that the values touch, and the range they span."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    marks = [digit * 10.0**power for power in range(low, high + 1) for digit in (1, 2, 5)]
    below = [mark for mark in marks if mark <= min(values)]
    above = [mark for mark in marks if mark >= max(values)]
    start, end = below[-1] if below else marks[0], above[0] if above else marks[-1]
    if start == end:
        end = start * 10
    shown = [mark for mark in marks if start <= mark <= end]
    if len(shown) > 10:
        shown = [mark for mark in shown if math.isclose(mark, 10.0 ** round(math.log10(mark)))]
    return start, end, {mark: f"{mark:g}" for mark in shown}


def line_chart(title, x_label, y_label, series, x_text, notes=(), legend_left=False):
    """The chart as text. `x_text` names an x value; `notes` stand below the title. The legend is on the
    right unless that is where the curves are."""
    xs = sorted({x for one in series for x, _ in one.points})
    ys = [figure[name] for one in series for _, figure in one.points for name in ("min", "max")]
    x_axis = Axis(x_label, xs[0], xs[-1] if xs[-1] > xs[0] else xs[0] * 2, {x: x_text(x) for x in xs})
    y_axis = Axis(y_label, *decades(ys))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             f'width="{WIDTH}" height="{HEIGHT}"><style>{STYLE}</style>',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
             f'<text class="title" x="{LEFT}" y="22">{escape(title)}</text>']
    parts += [f'<text x="{LEFT}" y="{40 + 14 * index}">{escape(note)}</text>'
              for index, note in enumerate(notes)]
    parts += frame_of(x_axis, y_axis)
    for index, one in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        parts += curve(one, colour, x_axis, y_axis)
        parts += legend_of(one, colour, index, LEFT + 14 if legend_left else WIDTH - RIGHT - 250)
    return "\n".join(parts) + "\n</svg>\n"


def x_of(axis, value):
    return round(LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT), 1)


def y_of(axis, value):
    return round(HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - TOP - BOTTOM), 1)


def frame_of(x_axis, y_axis):
    """Grid, marks and names of the axes."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts, named_until = [], 0
    for value, text in x_axis.texts.items():
        x = x_of(x_axis, value)
        parts.append(f'<line class="grid" x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}"/>')
        # Labels of close values would overlap, so some are left out.
        half = len(text) * LETTER_WIDTH / 2
        if x - half >= named_until:
            parts.append(f'<text x="{x}" y="{bottom + 17}" text-anchor="middle">{escape(text)}</text>')
            named_until = x + half + LETTER_WIDTH
    for value, text in y_axis.texts.items():
        y = y_of(y_axis, value)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{escape(text)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>')
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
                 f'{escape(x_axis.label)}</text>')
    middle = (TOP + bottom) / 2
    parts.append(f'<text transform="rotate(-90 18 {middle})" x="18" y="{middle}" text-anchor="middle">'
                 f'{escape(y_axis.label)}</text>')
    return parts


def curve(series, colour, x_axis, y_axis):
    """Line, and points with bars."""
    parts, path = [], []
    for x_value, figure in series.points:
        x, y = x_of(x_axis, x_value), y_of(y_axis, figure["median"])
        path.append(f"{x},{y}")
        low, high = y_of(y_axis, figure["min"]), y_of(y_axis, figure["max"])
        parts.append(f'<line stroke="{colour}" x1="{x}" y1="{low}" x2="{x}" y2="{high}"/>')
        parts.append(f'<circle fill="{colour}" cx="{x}" cy="{y}" r="3">'
                     f'<title>{figure["median"]:.4g}</title></circle>')
    parts.insert(0, f'<polyline class="line" stroke="{colour}" points="{" ".join(path)}"/>')
    return parts


def legend_of(series, colour, index, x):
    """One entry of the legend."""
    y = TOP + 14 + 17 * index
    return [f'<line class="line" stroke="{colour}" x1="{x}" y1="{y - 4}" x2="{x + 24}" y2="{y - 4}"/>',
            f'<text x="{x + 30}" y="{y}">{escape(series.name)}</text>']
