"""Pieces of SVG that pictures are made of: words, lines, and a confusion matrix. Pure text without scripts."""

from collections.abc import Iterable, Iterator, Sequence
from xml.sax.saxutils import escape

INK, FAINT, GRID = "#17212b", "#57606a", "#d0d7de"
FILL, LINE = "#0b6e4f", "#b3541e"
LONGEST = 18  # characters of a name


def document(width: float, height: float, lines: Iterable[str]) -> str:
    """The text of an SVG on white."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif"'
    background = f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
    return "\n".join([f'{head} font-size="12">', background, *lines, "</svg>", ""])


def text(
    x: float, y: float, said: str, *, anchor: str = "start", weight: str = "normal", size: int = 12, ink: str = INK
) -> str:
    """Words on one line, escaped; `y` is their baseline."""
    style = f'text-anchor="{anchor}" font-weight="{weight}" font-size="{size}" fill="{ink}"'
    plain = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in said)
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(plain)}</text>'


def line(x0: float, y0: float, x1: float, y1: float, colour: str, *, width: float = 1.0, opacity: float = 1.0) -> str:
    """A straight line."""
    style = f'stroke="{colour}" stroke-width="{width:g}" stroke-opacity="{opacity:g}"'
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" {style}/>'


def short(name: str, longest: int = LONGEST) -> str:
    """A name that has room."""
    return name if len(name) <= longest else f"{name[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"


def matrix(
    rows: Sequence[str], columns: Sequence[str], counts: Sequence[Sequence[int]], left: float, top: float, side: float
) -> Iterator[str]:
    """A confusion matrix: what came true by row, decisions by column; the darker, the larger the share of its row."""
    wide, high = side / len(columns), side / len(rows)
    yield text(left, top - 24, "label by row, decision by column", size=11)
    for j, name in enumerate(columns):
        yield text(left + (j + 0.5) * wide, top - 6, short(name), anchor="middle", size=11)
    for i, (name, mine) in enumerate(zip(rows, counts, strict=True)):
        yield text(left - 6, top + (i + 0.5) * high + 4, short(name), anchor="end", size=11)
        for j, count in enumerate(mine):
            share = count / max(1, sum(mine))
            x, y = left + j * wide, top + i * high
            place = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"'
            yield f'<rect {place} fill="{FILL}" fill-opacity="{share:.3f}" stroke="{GRID}"/>'
            ink = "#ffffff" if share > 0.8 else INK  # contrast
            yield text(x + wide / 2, y + high / 2 + 4, f"{count:,}", anchor="middle", ink=ink)
