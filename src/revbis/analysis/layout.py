"""Tables as plain text, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Origin = Literal["measured", "reported"]
FIRST, SECOND = 1, 2
_WIDE = 5  # columns that still fit a page
_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "†": r"$\dagger$",
    "–": "--",
    "“": "``",
    "”": "''",
}


class Column(NamedTuple):
    """A column.

    Attributes:
        label: Its name.
        source: Whether its numbers are measured or the paper's.
    """

    label: str
    source: Origin


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        text: Its text.
        remark: How it differs from the others, such as fewer seeds.
        mean: The number it is ranked by; None if it may not be compared.
        rank: 1 for the best of its source in its row, 2 for the second, 0 for all others.
    """

    text: str
    remark: str = ""
    mean: float | None = None
    rank: int = 0


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        caption: What it shows.
        corner: Heading of the first column.
        columns: Its columns, those of one source together.
        rows: Name and cells of each row.
        notes: What a reader must know.
        records: The numbers, for CSV.
    """

    caption: str
    corner: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    notes: tuple[str, ...]
    records: tuple[Mapping[str, Any], ...]

    def text(self, width: int = 80) -> str:
        """Plain text for a terminal: a line for each cell, below its row's name.

        Args:
            width: Of the terminal, in columns; no line is longer.
        """
        names = [f"{column.label} ({column.source})" for column in self.columns]
        room = max(map(len, names), default=0)
        caption = re.sub(r" Bold: [^.]*\.", "", self.caption)  # here ranks are words
        lines = [*_indented(caption, width, ""), ""]
        for name, cells in self.rows:
            lines += _indented(f"{self.corner} {name}", width, "")
            for label, cell in zip(names, cells, strict=True):
                value = _in_words(cell)
                if 4 + room + len(value) <= width:
                    lines.append(f"  {label:<{room}}  {value}")
                else:
                    lines += _indented(label, width, "  ") + _indented(value, width, "    ")
        lines += [""] if self.notes else []
        for note in self.notes:
            lines += _indented(note, width, "- ", "  ")
        return "\n".join(lines) + "\n"

    def markdown(self) -> str:
        """GitHub's Markdown: caption, table, notes."""
        head = [self.corner, *(f"{column.label} ({column.source})" for column in self.columns)]
        lines = [head, ["---"] + ["---:"] * len(self.columns)]
        lines += [[name, *map(_in_markdown, cells)] for name, cells in self.rows]
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        notes = "".join(f"- {note}\n" for note in self.notes)
        return f"{self.caption}\n\n{body}\n\n{notes}"

    def latex(self) -> str:
        """A table environment; it needs the packages booktabs and graphicx."""
        sources = Counter(column.source for column in self.columns)
        over, rules, left = [], [], 2
        for source, count in sources.items():
            over.append(rf"\multicolumn{{{count}}}{{c}}{{{source}}}")
            rules.append(rf"\cmidrule(lr){{{left}-{left + count - 1}}}")
            left += count
        head = " & ".join(_escape(name) for name in (self.corner, *(c.label for c in self.columns)))
        lines = [
            rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}",
            r"\toprule",
            rf" & {' & '.join(over)} \\",
            " ".join(rules),
            rf"{head} \\",
            r"\midrule",
            *(
                rf"{_escape(name)} & {' & '.join(map(_in_latex, cells))} \\"
                for name, cells in self.rows
            ),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        if len(self.columns) > _WIDE:
            lines = [r"\resizebox{\linewidth}{!}{%", *lines[:-1], lines[-1] + "}"]
        notes = [rf"\par {_escape(note)}" for note in self.notes]
        return "\n".join(
            [
                r"% needs \usepackage{booktabs,graphicx}",
                r"\begin{table*}",
                r"\centering",
                rf"\caption{{{_escape(self.caption)}}}",
                *lines,
                r"\begin{minipage}{\linewidth}\footnotesize",
                *notes,
                r"\end{minipage}",
                r"\end{table*}",
                "",
            ]
        )

    def csv(self) -> str:
        """A row for each number, not rounded."""
        text = io.StringIO()
        names = dict.fromkeys(name for record in self.records for name in record)
        writer = csv.DictWriter(text, list(names), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records)
        return text.getvalue()


def _in_words(cell: Cell) -> str:
    ranks = {FIRST: "best", SECOND: "second"}
    remarks = [*filter(None, (cell.remark, ranks.get(cell.rank)))]
    return cell.text + (f" ({', '.join(remarks)})" if remarks else "")


def _indented(text: str, width: int, first: str, others: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=first if others is None else others,
        break_on_hyphens=False,
    )


def _in_markdown(cell: Cell) -> str:
    marks = {FIRST: ("**", "**"), SECOND: ("<ins>", "</ins>")}
    before, after = marks.get(cell.rank, ("", ""))
    return f"{before}{cell.text}{after}" + (f" ({cell.remark})" if cell.remark else "")


def _in_latex(cell: Cell) -> str:
    text = _escape(cell.text)
    if cell.rank:
        text = rf"\{'textbf' if cell.rank == FIRST else 'underline'}{{{text}}}"
    return text + (f" ({_escape(cell.remark)})" if cell.remark else "")


def _escape(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)
