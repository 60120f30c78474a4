"""What the site adds to Sphinx: links to folders, docstrings, the command line, formulas."""

from __future__ import annotations

import ast
import os
import re
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

from docutils.utils.math.latex2mathml import tex2mathml

from revbis import cli

if TYPE_CHECKING:
    from sphinx.application import Sphinx

COMMAND_LINE = "docs/reference/command-line"
RESULTS, VERDICTS = "docs/results", "<!-- verdicts -->"  # the page, and where they go in it
# Their names load on first use; autodoc sees what is loaded.
LAZY = ("revbis.tabular", "revbis.objectives", "revbis.agents", "revbis.replay")
EXAMPLES = "docs/examples.md"  # the page that stands for a folder without a page of its own
_WIDTH = 80  # of help, which wraps all but its first lines itself
_ARRAY = re.compile(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]")
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_STUDY = re.compile(r"\]\((\w[\w-]*)/README\.md\)")
_FORMULA = re.compile(r"\\\((.+?)\\\)", flags=re.S)
_KEPT = re.compile(r"(`[^`]*`|(?<![\w*\\])\*\w[^*\n]*\*(?!\w))")
_PLURAL = re.compile(r"(?<=\w)`(?=[a-z])")  # of code: `Env`s
_SPECIAL = re.compile(r"(?<!\\)[|*]")
# Signs that docstrings write as they are and docutils expects in LaTeX.
_SIGNS = str.maketrans(
    {
        "−": "-",
        "‖": r"\Vert ",
        "²": "^2",
        "½": r"\tfrac{1}{2}",
        "…": r"\ldots ",
        "∈": r"\in ",
        "≤": r"\le ",
    }
)


def with_page_links(text: str, page: Path, root: Path) -> str:
    """The page with links to folders leading to their README.md, or to the page of examples.

    Args:
        text: The page's Markdown.
        page: Its file.
        root: The checkout.
    """

    def replaced(match: re.Match[str]) -> str:
        target = (page.parent / match[1]).resolve()
        if not target.is_dir():
            return match[1]
        own = target / "README.md"
        return os.path.relpath(own if own.exists() else root / EXAMPLES, page.parent)

    return _LINK.sub(replaced, text)


def verdicts(root: Path, page: Path) -> str:
    """Question, verdict and evidence of every study that begins with them, in Markdown.

    A study's page begins with its question, a paragraph in whose bold words is the verdict, and a
    picture. The order is that of results/README.md.

    Args:
        root: The checkout.
        page: The file that it becomes part of.
    """
    parts = []
    for name in dict.fromkeys(_STUDY.findall((root / "results" / "README.md").read_text())):
        study = root / "results" / name / "README.md"
        question, verdict, picture, *_ = [*study.read_text().split("\n\n")[:3], "", "", ""]
        if not (question.startswith("# ") and "?" in question and verdict.startswith("**")):
            continue
        shown = [verdict, *([picture] if picture.startswith("![") else [])]
        there = os.path.relpath(study.parent, page.parent)
        parts += [f"## {question[2:]}", *(_LINK.sub(rf"{there}/\1", part) for part in shown)]
        parts.append(f"[The evidence]({there}/README.md): tables, records, limits.")
    return "\n\n".join(parts)


def command_help(*words: str) -> str:
    """What a command prints with --help."""
    output = StringIO()
    with redirect_stdout(output), suppress(SystemExit):
        cli.main([*words, "--help"])
    lines = (fill(line.rstrip(), _WIDTH) for line in output.getvalue().strip().splitlines())
    return "\n".join(lines)


def command_line_page() -> str:
    """Every command and its flags, in Markdown."""
    parts = [_block("revbis")]
    for group, what in cli._COMMANDS.items():  # noqa: SLF001 (users have no need of it)
        commands = getattr(import_module(f"revbis.cli.{group}"), "COMMANDS", None)
        parts.append(f"## `revbis {group}`\n\n{what[0].upper()}{what[1:]}.\n")
        if commands is None:
            parts.append(_block("revbis", group))
        for name in commands or ():
            parts += [f"### `revbis {group} {name}`\n", _block("revbis", group, name)]
    return "\n".join(parts)


def plain_docstring(text: str) -> str:
    r"""The docstring as reStructuredText: formulas, \(x\), programs, |x| and **x."""
    text = _FORMULA.sub(lambda match: f":math:`{' '.join(match[1].split())}`", text)
    return "\n\n".join(map(_paragraph, text.split("\n\n")))


def _paragraph(text: str) -> str:
    if _is_program(text):
        return "::\n\n" + indent(text, "    ")
    if text.lstrip().startswith(".. "):  # a directive, such as a formula
        return text
    parts = _KEPT.split(text)  # code and emphasis are at odd places
    parts[::2] = (_SPECIAL.sub(r"\\\g<0>", part) for part in parts[::2])
    return _PLURAL.sub(r"\g<0>\\ ", "".join(parts))


def _is_program(text: str) -> bool:
    try:
        lines = ast.parse(text).body
    except SyntaxError:
        return False
    return any(isinstance(line, ast.Assign) for line in lines)


def _block(*words: str) -> str:
    return f"```text\n{command_help(*words[1:])}\n```\n"


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    page, root = Path(app.env.doc2path(name)), Path(app.srcdir)
    if name == RESULTS:
        source[0] = source[0].replace(VERDICTS, verdicts(root, page))
    source[0] = with_page_links(source[0], page, root)
    if name == COMMAND_LINE:
        source[0] += "\n" + command_line_page()


def _docstring(*about: Any) -> None:
    lines: list[str] = about[-1]  # after app, kind, name, object and options
    lines[:] = plain_docstring("\n".join(lines)).split("\n")


def _signature(*about: Any) -> tuple[str | None, str | None]:
    """A signature with array types as readers write them: ndarray[float64]."""
    parts = (part and _ARRAY.sub(r"ndarray[\1]", part) for part in about[-2:])
    return next(parts), next(parts)


def _load(_app: Sphinx) -> None:
    for module in map(import_module, LAZY):
        for name in module.__all__:
            setattr(module, name, getattr(module, name))


def _formula(writer: Any, node: Any) -> None:
    from docutils import nodes

    writer.body.append(
        tex2mathml(node.astext().translate(_SIGNS), as_block=isinstance(node, nodes.math_block))
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Connects all of it."""
    app.connect("builder-inited", _load)
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _docstring, priority=900)  # after napoleon
    app.connect("autodoc-process-signature", _signature)
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
