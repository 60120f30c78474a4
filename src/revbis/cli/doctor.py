"""What this machine can do, what is missing and how to fix it."""

from __future__ import annotations

import sys
import textwrap

from rich.console import Console
from rich.text import Text

from revbis.doctor import examine
from revbis.io.text import line_width

_COLOURS = {"ok": "green", "warning": "yellow", "missing": "red", "broken": "red"}
_INDENT = 26


def command() -> None:
    """Tries everything that training needs: torch, memory, disk, OpenGL, the simulators.

    Draws an image with each OpenGL backend, takes a step in each simulator, and prints the results,
    with the command that fixes each problem. Takes a few seconds. The exit code is 0 if training
    would work, else 1.
    """
    progress = Console(stderr=True)
    if progress.is_terminal:
        with progress.status("examining") as status:
            report = examine(lambda text: status.update(text + " …"))
    else:
        print("revbis doctor: this takes a few seconds", file=sys.stderr, flush=True)
        report = examine()
    width = line_width()
    console = Console(width=width, highlight=False, soft_wrap=True)
    for heading, findings in report.sections().items():
        console.print(Text(heading, style="bold"))
        for finding in findings:
            detail = textwrap.wrap(finding.detail, max(width - _INDENT, 20)) or [""]
            line = Text(f"  {finding.health:<11}", style=_COLOURS.get(finding.health, ""))
            console.print(line.append(f"{finding.name:<12} {detail[0]}", style="not bold default"))
            for more in detail[1:]:
                console.print(Text(" " * _INDENT + more))
            first = "to install" if finding.health == "not needed" else "fix"
            for number, fix in enumerate(finding.fixes):
                # not wrapped, however long: it is there to be copied
                console.print(Text(f"{' ' * _INDENT}{'or' if number else first}: {fix}"))
    console.print(Text(report.verdict, style="bold"))
    sys.exit(0 if report.works else 1)
