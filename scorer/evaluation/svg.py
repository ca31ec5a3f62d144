"""Parts of SVG plots: the document, text, lines, and a matrix of counts. Pure.

Every part has a colour, which a plot in a file uses, and a CSS class, by which the style sheet of a page can replace the
colour.
"""

# The product uses no plotting library: it draws only texts, lines, dots and rectangles, for which matplotlib 3.11 with its
# dependencies would add 76 MB to the image and more than a second to the start of a command.

from collections.abc import Iterable, Iterator, Sequence
from xml.sax.saxutils import escape

TONES = {
    "ink": "#17212b",
    "muted": "#586172",
    "line": "#d0d7de",
    "axis": "#8b98a5",
    "good": "#0b6e4f",
    "bad": "#ae2338",
    "mark": "#b3541e",
    "none": "none",
}
"""Tone -> its colour in a plot file. The tone of a part is also its CSS class."""
DARKEST = 0.45  # opacity of the darkest cell: its text is still readable
PERCENT_FROM = 44.0  # minimum height in pixels of a cell that also shows its share


def picture(width: int, height: int, parts: Iterable[str]) -> str:
    """Return an SVG document with these parts on a white background."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    paper = f'<rect class="paper" width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, paper, *parts, "</svg>", ""])


def text(
    x: float, y: float, content: str, *, anchor: str = "start", weight: str = "normal", size: int = 12, tone: str = "ink"
) -> str:
    """Return an SVG text of one line; unprintable characters are replaced."""
    style = f'text-anchor="{anchor}" font-weight="{weight}" font-size="{size}" class="{tone}" fill="{TONES[tone]}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escaped(content)}</text>'


def escaped(content: str) -> str:
    """Escape a text for use in an SVG element; unprintable characters are replaced."""
    return escape("".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in content))


def line(x1: float, y1: float, x2: float, y2: float, tone: str = "line", width: float = 1) -> str:
    """Return a straight line as SVG."""
    place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {place} class="stroke {tone}" stroke="{TONES[tone]}" stroke-width="{width}"/>'


def matrix(
    rows: Sequence[str], columns: Sequence[str], counts: Sequence[Sequence[int]], left: float, top: float, side: float
) -> Iterator[str]:
    """Yield the parts of a matrix of counts, `side` pixels wide, with row names at the left and column names above.

    A cell with a larger share of its row is darker.
    """
    wide = side / len(columns)
    high = side / len(rows)
    for j, name in enumerate(columns):
        yield text(left + (j + 0.5) * wide, top - 6, short(name), anchor="middle", size=11)
    for i, (name, row) in enumerate(zip(rows, counts, strict=True)):
        yield text(left - 6, top + (i + 0.5) * high + 4, short(name), anchor="end", size=11)
        total = max(1, sum(row))
        for j, count in enumerate(row):
            x = left + j * wide
            y = top + i * high
            share = count / total
            place = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"'
            dark = f'fill="{TONES["good"]}" fill-opacity="{DARKEST * share:.3f}" stroke="{TONES["line"]}"'
            yield f'<rect {place} class="cell" {dark}/>'
            room = high >= PERCENT_FROM
            yield text(x + wide / 2, y + high / 2 + (0 if room else 4), f"{count:,}", anchor="middle")
            if room:
                yield text(x + wide / 2, y + high / 2 + 16, f"{100 * share:.1f} %", anchor="middle", size=11, tone="muted")


def short(name: str, most: int = 18) -> str:
    """Shorten a name to at most `most` characters, to fit beside a plot."""
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
