"""Numbers, times and tables as text."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence


def format_bytes(size: float) -> str:
    """A number of bytes, with three digits and a unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def format_number(value: float) -> str:
    """A number of unknown kind: a count without decimals, anything else with three."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.3f}"


def format_interval(seconds: float) -> str:
    """A short time, with three digits: in milliseconds, or in seconds from one second on."""
    value, unit = (1000 * seconds, "ms") if seconds < 0.9995 else (seconds, "s")
    return f"{value:.0f} {unit}" if value >= 999.5 else f"{value:.3g} {unit}"


def format_duration(seconds: float) -> str:
    """A duration, in its two largest units."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours // 24} days {hours % 24} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


_GAP = "  "
_LEAST_WIDTH = 40
_FILE_WIDTH = 120  # where nobody says how wide a line may be, as in a file or a pipe
_SENTENCE = 24  # a cell that is longer may be broken between words, a shorter one may not
_NUMBER = re.compile(r"[-+−]?[\d,_]*\.?\d+(e[-+]?\d+)?%?|-?nan|-?inf", re.IGNORECASE)

Rows = Sequence[dict[str, str]]


def line_width() -> int:
    """How long a printed line may be: COLUMNS, else the terminal's width, else 120."""
    return max(shutil.get_terminal_size((_FILE_WIDTH, 24)).columns, _LEAST_WIDTH)


def table_width(rows: Rows) -> int:
    """How wide the table is at least, with nothing left out."""
    return _total([_narrowest(name, rows) for name in rows[0]])


def wrap(text: str, width: int) -> list[str]:
    """The lines of a text that is broken between words, and nowhere else."""
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return lines if len(text) > width else [text]


def lay_out(title: str, rows: Rows, width: int, spare: Sequence[str] = ()) -> list[str]:
    """The lines of a table of rows with the same keys.

    Headings and long cells are broken between words to fit. Where that does not suffice, spare
    columns are left out; where even that does not, each row becomes a block of lines.

    Args:
        title: Line above the table; none if empty.
        rows: Cells by the name of their column.
        width: What a line must not exceed.
        spare: Columns to leave out first, in that order.
    """
    if not rows:
        return [f"{title}: nothing" if title else "nothing"]
    shown, left_out = list(rows[0]), []
    for name in spare:
        if _total([_narrowest(n, rows) for n in shown]) <= width:
            break
        shown.remove(name)
        left_out.append(name)
    rows = [{name: row[name] for name in shown} for row in rows]
    body = _table(rows, width) if table_width(rows) <= width else _blocks(rows, width)
    note = wrap(f"not shown at this width: {', '.join(left_out)}", width) if left_out else []
    return [*([title] if title else []), *body, *note]


def _table(rows: Rows, width: int) -> list[str]:
    names = list(rows[0])
    widths = [max(map(len, (name, *(row[name] for row in rows)))) for name in names]
    least = [_narrowest(name, rows) for name in names]
    while _total(widths) > width:
        slack = [w - at_least for w, at_least in zip(widths, least, strict=True)]
        widest = max((w, i) for i, w in enumerate(widths) if slack[i] > 0)[1]
        widths[widest] -= 1
    right = [all(_NUMBER.fullmatch(row[name]) for row in rows) for name in names]
    lines = _row(names, widths, right)
    lines.append(_GAP.join("─" * w for w in widths))
    for row in rows:
        lines += _row(list(row.values()), widths, right)
    return lines


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    wrapped = [wrap(cell, w) for cell, w in zip(cells, widths, strict=True)]
    lines = []
    for number in range(max(map(len, wrapped))):
        parts = [cell[number] if number < len(cell) else "" for cell in wrapped]
        aligned = [
            part.rjust(w) if to_right else part.ljust(w)
            for part, w, to_right in zip(parts, widths, right, strict=True)
        ]
        lines.append(_GAP.join(aligned).rstrip())
    return lines


def _blocks(rows: Rows, width: int) -> list[str]:
    """Each row on its own: its first cell, and under it a line for each of the others."""
    first, *names = rows[0]
    label = max(map(len, names), default=0)
    indent = " " * (len(_GAP) + label + len(_GAP))
    lines = []
    for row in rows:
        lines.append(f"{first}: {row[first]}" if first else row[first])
        for name in names:
            start, *more = wrap(row[name], max(width - len(indent), _SENTENCE))
            lines.append(f"{_GAP}{name:<{label}}{_GAP}{start}".rstrip())
            lines += [indent + line for line in more]
    return lines


def _narrowest(name: str, rows: Rows) -> int:
    """How narrow a column can be: no word of its heading or of a long cell is broken."""
    words = name.split()
    for row in rows:
        cell = row[name]
        words += cell.split() if len(cell) > _SENTENCE else [cell]
    longest = max(map(len, words), default=0)
    if any(len(row[name]) > _SENTENCE for row in rows):
        longest = max(longest, _SENTENCE)
    return longest


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)
