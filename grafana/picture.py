"""Draws panels as one SVG, roughly as Grafana lays them out, and screens of a terminal.

Knows nothing of Prometheus.

A panel is a dictionary: `kind` (`timeseries`, `dots`, `stat` or `row`, a heading), `title`, `unit`
as Grafana names units, `lines` (pairs of a legend and its points, (time, value)), `stacked`, `bad`
(a stat is red from here on) and `place` (x, y, w, h in a grid of 24 columns). Times are in seconds;
the axis counts from the beginning of `span`. `marks` are pairs of a time and a word, drawn through
every graph.
"""

import html
import math
import operator

COLUMN, ROW, EDGE = 45, 28, 12
COLOURS = ["#1f7a5c", "#d98e04", "#2b6cb0", "#c2410c", "#7c3aed", "#0f9fb5", "#be185d", "#84942b",
           "#8b5e3c", "#6b7280"]
INK, FAINT, GRID, MARK, BAD = "#222", "#667", "#e4e7eb", "#c2410c", "#b91c1c"
# Of the font at its usual size, in pixels; SVG cannot measure a text.
LETTER = 6.0
LEGEND_ROWS = 2
FEW = 5
# A character of a terminal: its width and the height of its line.
CELL = (7.2, 15)


def page(title, subtitle, panels, span, marks=()):
    """The whole picture as text."""
    top = 58 + (76 if marks else 0)
    width = 24 * COLUMN + 2 * EDGE
    height = top + ROW * max(panel["place"]["y"] + panel["place"]["h"] for panel in panels) + EDGE
    out = start(width, height, title, subtitle)
    for panel in panels:
        place = panel["place"]
        box = (EDGE + place["x"] * COLUMN + 3, top + place["y"] * ROW + 3,
               place["w"] * COLUMN - 6, place["h"] * ROW - 6)
        out += DRAW[panel["kind"]](panel, box, span, marks)
    if marks:
        whole = plot_of((EDGE + 3, 0, 24 * COLUMN - 6, 0))
        for time, word in marks:
            x = across(time, span, whole)
            out.append(f'<g transform="translate({x + 3:.1f} {top - 2}) rotate(-40)">'
                       f"{text(0, 0, word, colour=MARK)}</g>")
    return "\n".join([*out, "</svg>"]) + "\n"


def terminal(title, subtitle, screens):
    """Screens of a terminal, each some lines of text, one below the other."""
    columns = max(len(line) for lines in screens for line in lines)
    width = 2 * EDGE + 20 + max(columns * CELL[0], len(subtitle) * LETTER)
    out, y = [], 58
    for lines in screens:
        height = len(lines) * CELL[1] + 16
        out.append(f'<rect x="{EDGE}" y="{y}" width="{width - 2 * EDGE:.0f}" height="{height}" rx="4" '
                   f'fill="#1b1f24"/>')
        for number, line in filter(operator.itemgetter(1), enumerate(lines, start=1)):
            # The length is said, because the reader's font may be a wider one.
            out.append(f'<text x="{EDGE + 10}" y="{y + 4 + number * CELL[1]}" fill="#e6e8eb" xml:space="preserve" '
                       f'font-family="monospace" font-size="12" textLength="{len(line) * CELL[0]:.0f}">'
                       f"{html.escape(line)}</text>")
        y += height + EDGE
    return "\n".join([*start(width, y, title, subtitle), *out, "</svg>"]) + "\n"


def start(width, height, title, subtitle):
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width:.0f}" height="{height}" fill="#f6f7f9"/>',
        text(EDGE + 4, 26, title, size=17, bold=True),
        text(EDGE + 4, 45, subtitle, colour=FAINT, size=12),
    ]


def text(x, y, words, *, colour=INK, size=11, anchor="start", bold=False):
    weight = ' font-weight="bold"' if bold else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" '
            f'text-anchor="{anchor}"{weight}>{html.escape(words)}</text>')


def row(panel, box, _span, _marks):
    left, top, _, height = box
    return [text(left + 2, top + height - 4, panel["title"], size=13, bold=True)]


def frame(panel, box):
    left, top, width, height = box
    return [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="3" fill="white" '
            f'stroke="{GRID}"/>', text(left + 10, top + 18, panel["title"], size=12, bold=True)]


def stat(panel, box, span, _marks):
    left, top, width, height = box
    values = [points[-1][1] for _, points in panel["lines"] if points]
    is_bad = panel["bad"] is not None and any(value >= panel["bad"] for value in values)
    if not values:
        shown = "no data"
    elif panel["unit"] == "dateTimeFromNow":
        shown = f"{form('s', round(span[1] - values[0] / 1000))} ago"
    else:
        shown = form(panel["unit"], values[0])
    return frame(panel, box) + [text(left + width / 2, top + height / 2 + 18, shown, size=24,
                                     colour=BAD if is_bad else COLOURS[0], anchor="middle", bold=True)]


def plot_of(box):
    """The part of a panel that lines are drawn in: left, top, width, height."""
    left, top, width, height = box
    return left + 58, top + 30, width - 74, height - 30 - 22 - 16 * LEGEND_ROWS


def across(time, span, plot):
    return plot[0] + plot[2] * (time - span[0]) / (span[1] - span[0])


def graph(panel, box, span, marks):
    lines = [(name, points) for name, points in panel["lines"] if points]
    # What never was anything is named last and drawn first.
    lines.sort(key=lambda line: max(value for _, value in line[1]) <= 0)
    plot = plot_of(box)
    lowest = {}
    if panel["stacked"]:
        lines, lowest = stack(lines)
    highest = max((value for _, points in lines for _, value in points), default=0)
    step = nice(highest, panel["unit"]) if highest > 0 else 1
    ceiling = step * max(math.ceil(highest / step * 1.02), 1)

    # As in the dashboards, all axes begin at 0.
    def place(time, value):
        return across(time, span, plot), plot[1] + plot[3] * (1 - max(value, 0) / ceiling)

    out = frame(panel, box) + axes(panel["unit"], plot, span, step, ceiling, place)
    for time, _ in marks:
        x = across(time, span, plot)
        out.append(f'<line x1="{x:.1f}" y1="{plot[1]}" x2="{x:.1f}" y2="{plot[1] + plot[3]}" '
                   f'stroke="{MARK}" stroke-opacity="0.45" stroke-dasharray="2 3"/>')
    # Many areas upon each other are a grey one.
    shade = 0.3 if panel["stacked"] else 0.07 if len(lines) <= FEW else 0
    for index, (name, points) in reversed(list(enumerate(lines))):
        colour = COLOURS[index % len(COLOURS)]
        if panel["kind"] == "dots":
            out.append(dots([place(*point) for point in points], colour))
            continue
        below = lowest.get(name, [(time, 0) for time, _ in points])
        for piece in pieces(list(zip(points, below))):
            corners, floor = ([place(*point) for point in side] for side in zip(*piece))
            out += area(corners, floor, colour, shade) if len(piece) > 1 else [dots(corners, colour)]
    return out + key([name for name, _ in lines], box, plot)


def axes(unit, plot, span, step, ceiling, place):
    left, _, width, _ = plot
    out = []
    for number in range(round(ceiling / step) + 1):
        _, y = place(span[0], number * step)
        out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" stroke="{GRID}"/>')
        out.append(text(left - 6, y + 4, form(unit, number * step), colour=FAINT, anchor="end"))
    length = span[1] - span[0]
    # As many labels as there is room for.
    every = next(every for every in (5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)
                 if length / every <= max(width / 62, 1))
    for number in range(int(length / every) + 1):
        x, y = place(span[0] + number * every, 0)
        words = f"{number * every // 60}:{number * every % 60:02}"
        out.append(text(x, y + 16, words, colour=FAINT, anchor="middle"))
    return out


def stack(lines):
    """Each line upon the one before, and what it stands on."""
    sums, stacked, lowest = {}, [], {}
    for name, points in lines:
        lowest[name] = [(time, sums.get(time, 0)) for time, _ in points]
        stacked.append((name, [(time, sums.get(time, 0) + value) for time, value in points]))
        sums.update(stacked[-1][1])
    return stacked, lowest


def thinned(corners):
    """Without the corners in the middle of a level stretch."""
    return [corner for index, corner in enumerate(corners)
            if index in (0, len(corners) - 1)
            or not corners[index - 1][1] == corner[1] == corners[index + 1][1]]


def pieces(points):
    """The stretches of a line without gaps: where nothing was measured, nothing is drawn."""
    times = [time for (time, _), _ in points]
    step = min((after - before for before, after in zip(times, times[1:])), default=0)
    found = [[]]
    for time, point in zip(times, points):
        if found[-1] and time - found[-1][-1][0][0] > 1.5 * step:
            found.append([])
        found[-1].append(point)
    return found


def area(corners, floor, colour, shade):
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in thinned(corners))
    out = [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.4"/>']
    if shade:
        under = " ".join(f"{x:.1f},{y:.1f}" for x, y in reversed(thinned(floor)))
        out.append(f'<polygon points="{line} {under}" fill="{colour}" fill-opacity="{shade}"/>')
    return out


def dots(corners, colour):
    path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in corners)
    return f'<path d="{path}" stroke="{colour}" stroke-width="3" stroke-linecap="round" fill="none"/>'


def key(names, box, plot):
    """The legend, as much of it as there is room for."""
    left, width = box[0] + 12, box[2] - 24
    x, y, out = left, plot[1] + plot[3] + 34, []
    for index, name in enumerate(names):
        length = 26 + LETTER * len(name)
        last = y + 16 >= plot[1] + plot[3] + 34 + 16 * LEGEND_ROWS
        more = 0 if index == len(names) - 1 or not last else 50
        if x > left and x + length + more > left + width:
            if last:
                return [*out, text(x, y, f"… {len(names) - index} more", colour=FAINT)]
            x, y = left, y + 16
        colour = COLOURS[index % len(COLOURS)]
        out.append(f'<rect x="{x:.1f}" y="{y - 5:.1f}" width="12" height="3" fill="{colour}"/>')
        out.append(text(x + 16, y, name, colour=FAINT))
        x += length
    return out


def nice(highest, unit):
    """The step of an axis: of 1, 2, 5, 10, 20, … the smallest that needs no more than three or four."""
    base = 1024 ** int(math.log(highest, 1024)) if unit == "bytes" and highest >= 1 else 1
    least = highest / base / 3
    power = 10 ** math.floor(math.log10(least))
    return base * next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)


def scaled(value, base, units):
    index = 0
    while abs(value) >= base and index < len(units) - 1:
        value, index = value / base, index + 1
    return f"{value:.3g}{units[index]}"


def form(unit, value):
    """A value as Grafana writes it in this unit."""
    if unit == "s" and 0 < value < 1:
        return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"
    forms = {
        "s": lambda: f"{value:.3g} s",
        "bytes": lambda: scaled(value, 1024, (" B", " KiB", " MiB", " GiB", " TiB")),
        "Bps": lambda: scaled(value, 1000, (" B/s", " kB/s", " MB/s", " GB/s")),
        "percentunit": lambda: f"{value * 100:.3g}%",
        "ops": lambda: scaled(value, 1000, ("/s", " k/s", " M/s")),
        "reqps": lambda: scaled(value, 1000, ("/s", " k/s", " M/s")),
    }
    return forms.get(unit, lambda: scaled(value, 1000, ("", " k", " M", " G")))()


DRAW = {"row": row, "stat": stat, "timeseries": graph, "dots": graph}
