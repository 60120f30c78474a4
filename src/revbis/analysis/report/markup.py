"""HTML in small pieces; every value is escaped here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is HTML already."""


def text(value: object) -> Html:
    """A value as it is to be read; HTML is left alone."""
    return value if isinstance(value, Html) else Html(escape(str(value)))


def join(parts: Iterable[object], between: str = "") -> Html:
    """Pieces after each other."""
    return Html(between.join(text(part) for part in parts))


def element(name: str, *content: object, **attributes: object) -> Html:
    """An element; attributes are spelt as Python does (class_, data_task), None leaves one out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{join(content)}</{name}>")


def section(name: str, title: str, *content: object, note: str = "") -> Html:
    """A titled part of the page that links can lead to."""
    said = [element("p", note, class_="note")] if note else []
    return element("section", element("h2", title), *said, *content, id=name)


def table(
    head: Sequence[object], rows: Iterable[Html], class_: str | None = None, label: str = ""
) -> Html:
    """A table that scrolls sideways on its own where it is too wide."""
    top = element("thead", element("tr", *(element("th", name, scope="col") for name in head)))
    whole = element("table", top, element("tbody", *rows), class_=class_)
    return element("div", whole, class_="scroll", tabindex=0, role="region", aria_label=label)


def row(*cells: object, **attributes: object) -> Html:
    """A row of a table."""
    return element("tr", *(element("td", cell) for cell in cells), **attributes)
