"""What this machine can do, what is missing and how to fix it."""

from __future__ import annotations

import sys
import textwrap

_COLOURS = {"ok": "green", "warning": "yellow", "missing": "red", "broken": "red"}
_INDENT = 26


def command() -> None:
    """Tries every part that training needs: torch, memory, disk, OpenGL, the simulators.

    Draws a picture with each OpenGL backend, takes a step in each simulator, and prints what was
    found, with the line to type for each thing that is missing. Takes some seconds. The exit code
    is 0 when training would work, 1 when not.
    """
    from rich.console import Console
    from rich.text import Text

    from revbis.commands.tables import line_width
    from revbis.doctor.report import examine

    progress = Console(stderr=True)
    if progress.is_terminal:
        with progress.status("looking") as status:
            report = examine(lambda text: status.update(text + " …"))
    else:
        print("revbis doctor: trying each part takes some seconds", file=sys.stderr, flush=True)
        report = examine()
    width = line_width()
    console = Console(width=width, highlight=False, soft_wrap=True)
    for heading, findings in report.rows().items():
        console.print(Text(heading, style="bold"))
        for finding in findings:
            said = textwrap.wrap(finding.said, max(width - _INDENT, 20)) or [""]
            line = Text(f"  {finding.state:<11}", style=_COLOURS.get(finding.state, ""))
            console.print(line.append(f"{finding.name:<12} {said[0]}", style="not bold default"))
            for more in said[1:]:
                console.print(Text(" " * _INDENT + more))
            first = "to have it" if finding.state == "not needed" else "fix"
            for number, fix in enumerate(finding.fixes):
                # unbroken, however long: it is there to be copied
                console.print(Text(f"{' ' * _INDENT}{'or' if number else first}: {fix}"))
    console.print(Text(report.verdict, style="bold"))
    sys.exit(0 if report.works else 1)
