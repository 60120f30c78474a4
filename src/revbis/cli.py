"""The `revbis` command: finds the group, parses its flags, and turns mistakes into one line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

_COMMANDS = {
    "tabular": "exact metrics on finite MDPs: solve, bounds",
    "probe": "learned metrics beside the exact ones, on a rendered grid world",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; exits with 2 for a user's mistake."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        sys.exit(0 if words else 2)
    if words[0] == "--version":
        from revbis import __version__

        print(f"revbis {__version__}")
        return
    if words[0] not in _COMMANDS:
        _fail(f"unknown command {words[0]!r}; there is: {', '.join(_COMMANDS)}")
    warnings.showwarning = _show_warning
    try:
        _run(words[0], words[1:])
    except (ValueError, MemoryError) as error:
        _fail(str(error) or type(error).__name__)
    except OSError as error:
        _fail(f"{error.filename or 'file'}: {error.strerror or error}")
    except KeyboardInterrupt:
        print("\nrevbis: interrupted", file=sys.stderr)
        sys.exit(130)


def _run(group: str, words: list[str]) -> None:
    import tyro

    module = import_module(f"revbis.commands.{group}")
    name = f"revbis {group}"
    if hasattr(module, "COMMANDS"):
        tyro.extras.subcommand_cli_from_dict(
            module.COMMANDS, prog=name, description=module.__doc__, args=words
        )
    else:
        tyro.cli(module.command, prog=name, args=words)


def _usage() -> str:
    rows = "\n".join(f"  {name:<10} {what}" for name, what in _COMMANDS.items())
    return (
        "usage: revbis COMMAND ...\n\nBisimulation metrics in reinforcement learning.\n\n"
        f"commands:\n{rows}\n\n"
        "revbis COMMAND --help explains a command; revbis --version prints the version."
    )


def _fail(message: str) -> None:
    print(f"revbis: error: {message}", file=sys.stderr)
    sys.exit(2)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"revbis: warning: {message}", file=sys.stderr)
