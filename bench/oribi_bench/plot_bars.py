"""Bar charts as SVG: horizontal bars in groups, each stacked from parts, with the figure at its end."""

from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP = 760, 190, 90, 76
BAR, BAR_STEP, GROUP_GAP, BOTTOM = 16, 22, 30, 24
COLOURS = ["#0b6e99", "#c2410c", "#4d7c0f", "#a3a3a3", "#7c3aed"]
STYLE = ("text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}"
         ".group{font-weight:bold}.spread{stroke:#222}")


@dataclass
class Bar:
    """A bar: its parts by name in order, and where the whole has its extremes, if it has."""

    label: str
    parts: dict
    low: float | None = None
    high: float | None = None

    @property
    def total(self):
        return sum(self.parts.values())


def bar_chart(title, unit, groups, note=""):
    """The chart as text. `groups` is a list of (name, bars)."""
    names = list(dict.fromkeys(name for _, bars in groups for bar in bars for name in bar.parts))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    longest = max(max(bar.total, bar.high or 0) for _, bars in groups for bar in bars) or 1
    scale = (WIDTH - LEFT - RIGHT) / longest
    parts, y = [], TOP
    for name, bars in groups:
        parts.append(f'<text class="group" x="12" y="{y}">{escape(name)}</text>')
        y += 10
        for bar in bars:
            parts += bar_of(bar, y, scale, colours, unit)
            y += BAR_STEP
        y += GROUP_GAP
    height = y - GROUP_GAP + BOTTOM
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}"><style>{STYLE}</style>',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            f'<text class="title" x="12" y="22">{escape(title)}</text>',
            f'<text x="12" y="40">{escape(note)}</text>']
    return "\n".join([*head, *legend_of(colours), *parts]) + "\n</svg>\n"


def legend_of(colours):
    """Names of the parts; none when there is only one."""
    if len(colours) < 2:
        return []
    parts = []
    for index, (name, colour) in enumerate(colours.items()):
        x = LEFT + index * 110
        parts.append(f'<rect x="{x}" y="48" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="58">{escape(name)}</text>')
    return parts


def bar_of(bar, y, scale, colours, unit):
    """One bar with its label, the line from its lowest to its highest sample, and its figure."""
    middle = y + BAR / 2
    parts = [f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(bar.label)}</text>']
    x = LEFT
    for name, value in bar.parts.items():
        width = round(value * scale, 1)
        parts.append(f'<rect x="{round(x, 1)}" y="{y}" width="{width}" height="{BAR}" '
                     f'fill="{colours[name]}"><title>{escape(name)}: {value:.4g} {escape(unit)}</title></rect>')
        x += value * scale
    end = x
    if bar.low is not None and bar.high is not None:
        low, end = round(LEFT + bar.low * scale, 1), max(end, LEFT + bar.high * scale)
        parts.append(f'<line class="spread" x1="{low}" y1="{middle}" '
                     f'x2="{round(LEFT + bar.high * scale, 1)}" y2="{middle}"/>')
    parts.append(f'<text x="{round(end + 6, 1)}" y="{middle + 4}">{bar.total:,.4g} {escape(unit)}</text>')
    return parts
