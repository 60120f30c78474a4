"""The `revbis` command: finds the subcommand, parses its flags, reports mistakes in one line."""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial, wraps
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, NoReturn, cast

from revbis.cli.interrupts import CODE, ending_soon

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COMMANDS = {
    "tabular": "exact metrics on finite MDPs: solve, values, aggregate, bounds",
    "exactness": "how much of its exact metric each method learns: the benchmark",
    "env": "tasks in pixels: preview, check, list",
    "train": "train an agent on a task",
    "eval": "evaluate a run's agent",
    "export": "write a run's agent for others to load",
    "neighbours": "draw the nearest states under a run's learned metric",
    "yardstick": "measure a run's representation: noise, state, rank, values",
    "offline": "train encoders by objectives alone on a run's replay buffer",
    "report": "write an interactive page about runs",
    "sweep": "train a grid of runs, on this machine or a Ray cluster",
    "reproduce": "make the paper's tables and figures; train the missing runs first",
    "doctor": "what this machine can do, what is missing and how to fix it",
}

_MOVED = {
    "probe": "revbis probe is now revbis exactness",
    "isolate": "revbis isolate is now revbis offline",
    "bench": "the benchmarks are programs of the repository: python benchmarks/update.py",
}

# Tyro's message for a list of numbers, which includes the full type.
_LIST = re.compile(
    r"Could not (?:parse arguments|find valid parse for arguments:) (\[.*?\])(?: into .*)?$"
)
# Where a line of tyro's help names flags: -o PATH, --out PATH or --watch, --no-watch.
_FLAGS = re.compile(r"^[│ ]*((?:-\w[^,]*, )?--[\w-]+(?:, --[\w-]+)*)", re.MULTILINE)
_FLAG = re.compile(r"--[\w-]+")
# PyTorch's errors of every device, and how much it asked for, if they say so.
_MEMORY = re.compile(
    r"(?:out of|not enough|can't allocate) memory(?:.*?ried to allocate ([\d.]+ \w+))?", re.DOTALL
)
_PIPE_CLOSED = 141  # 128 + SIGPIPE, as for other programs in a shell
# Errors of our files have a name.
_OF_OUTPUT = (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line.

    The exit code is 2 for a user's mistake, 1 if the command documents it, 130 after Ctrl-C, and
    141 if the output is closed, as after `| head`.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            with ending_soon() as interrupts:
                _main(words, interrupts)
        finally:
            if sys.stdout is not None:  # it is None after >&-
                sys.stdout.flush()  # here, because errors at interpreter exit cannot be handled
    except OSError as error:
        _end_of_output(error)


def _main(words: list[str], interrupts: list[int]) -> None:
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        sys.exit(0 if words else 2)
    if words[0] == "--version":
        from revbis import __version__

        print(f"revbis {__version__}")
        return
    if words[0] in _MOVED:
        _fail(_MOVED[words[0]])
    if words[0] not in _COMMANDS:
        from revbis.io.schema import nearest

        hint = nearest(words[0], _COMMANDS) or f"; the commands are: {', '.join(_COMMANDS)}"
        _fail(f"unknown command {words[0]!r}{hint}")
    warnings.showwarning = _show_warning
    _show_log()
    try:
        _parse(words[0], words[1:])()
    except KeyboardInterrupt:
        _leave_interrupted()
    except Exception as error:
        if interrupts:  # a disturbed import may fail in any way
            _leave_interrupted()
        _fail_if_known(error)
        raise


def _leave_interrupted() -> NoReturn:
    print("\nrevbis: interrupted", file=sys.stderr)
    sys.exit(CODE)


def _fail_if_known(error: Exception) -> None:
    """Reports a user's mistake, or what a machine lacks, in one line."""
    if isinstance(error, (ValueError, MemoryError, ModuleNotFoundError)):
        _fail(str(error) or type(error).__name__)
    if isinstance(error, RuntimeError):
        from revbis.runs.folder import SupersededError

        if isinstance(error, SupersededError):
            _fail(str(error), code=1)
        if memory := _MEMORY.search(str(error)):
            _fail(_out_of_memory(memory[1]))


def _parse(group: str, words: list[str]) -> Callable[[], None]:
    """The command with its flags filled in; reports a mistake in one line, not in tyro's box."""
    errors = StringIO()
    try:
        with redirect_stderr(errors):
            return _filled_in(group, words)
    except ValueError as problem:
        _fail(_misspelt_flag(group, words) or str(problem))
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        _fail(_misspelt_flag(group, words) or _in_one_line(errors.getvalue(), f"revbis {group}"))


def _filled_in(group: str, words: list[str]) -> Callable[[], None]:
    """The command with its flags filled in.

    Raises:
        SystemExit: After help; and after a mistake, which tyro prints in a box.
        ValueError: For a mistake that the command itself finds.
    """
    import tyro

    from revbis.cli.flags import flag_rules

    module, name = import_module(f"revbis.cli.{group}"), f"revbis {group}"
    with flag_rules():
        if hasattr(module, "parse"):
            return cast("Callable[[], None]", module.parse(words, name))
        if hasattr(module, "COMMANDS"):
            commands = {key: _deferred(run) for key, run in module.COMMANDS.items()}
            parsed = tyro.extras.subcommand_cli_from_dict(
                commands, prog=name, description=module.__doc__, args=words
            )
        else:
            parsed = tyro.cli(_deferred(module.command), prog=name, args=words)
    return cast("Callable[[], None]", parsed)


def _misspelt_flag(group: str, words: list[str]) -> str | None:
    """The message for the first flag that is unknown but near a known one; None without one."""
    from revbis.io.schema import nearest

    known = _known_flags(group, words)
    for word in words:
        flag = word.partition("=")[0].replace("_", "-")
        if known and flag.startswith("--") and flag.strip("-") and flag not in known:
            near = nearest(flag.strip("-"), [each.strip("-") for each in known])
            if near:
                hint = near.replace(" '", " --").replace("'", "")
                return f"unknown flag {flag}{hint} (see revbis {group} --help)"
    return None


def _known_flags(group: str, words: list[str]) -> list[str]:
    """The flags in the help of a command; none if these words have no help."""
    first = bool(words) and not words[0].startswith("-")
    place = int(first and hasattr(import_module(f"revbis.cli.{group}"), "COMMANDS"))
    text = StringIO()
    with redirect_stdout(text), redirect_stderr(StringIO()), suppress(SystemExit, ValueError):
        _filled_in(group, [*words[:place], "--help", *words[place:]])
    return [flag for line in _FLAGS.findall(text.getvalue()) for flag in _FLAG.findall(line)]


def _deferred(function: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """The function with the same flags, to be called later."""

    @wraps(function)
    def fill_in(*args: object, **kwargs: object) -> Callable[[], None]:
        return partial(function, *args, **kwargs)

    return fill_in


def _in_one_line(box: str, name: str) -> str:
    """The text of tyro's box between title and first rule, and the flag it suggests."""
    lines = [line.strip("│ ") for line in box.splitlines()]
    is_rule = [not line.strip("╭╮╰╯─- ") for line in lines]
    body = [i for i in range(1, len(lines)) if not is_rule[i]]
    start = body[0] if body else 0
    end = next((i for i in range(start, len(lines)) if is_rule[i]), len(lines))
    message = _LIST.sub(r"must be whole numbers, got \1", " ".join(lines[start:end]).rstrip("."))
    suggested = [
        line.split()[0].rstrip(",")
        for line in lines[end:]
        if line.startswith("--") and line.strip("-")
    ]
    if suggested and message.startswith("Unrecognized"):
        message += f"; did you mean {suggested[0]}?"
    return f"{message} (see {name} --help)"


def _usage() -> str:
    rows = "\n".join(f"  {name:<10} {what}" for name, what in _COMMANDS.items())
    return (
        "usage: revbis COMMAND ...\n\nBisimulation metrics in reinforcement learning.\n\n"
        f"commands:\n{rows}\n\n"
        "Run revbis COMMAND --help for a command's flags, revbis --version for the version."
    )


def _fail(message: str, code: int = 2) -> NoReturn:
    print(f"revbis: error: {message}", file=sys.stderr)
    sys.exit(code)


def _out_of_memory(wanted: str | None) -> str:
    asked = f" (PyTorch asked for {wanted})" if wanted else ""
    return (
        f"out of memory{asked}: use smaller batches, networks or images, which a run has from "
        "--batch-size, --hidden, --channels and --pixels, or end other programs"
    )


def _end_of_output(error: OSError) -> NoReturn:
    """Exits after an OSError; silently if the output was closed."""
    reason = error.strerror or str(error)
    if error.filename:
        _fail(f"{error.filename}: {reason}")
    if error.errno not in _OF_OUTPUT:
        _fail(reason)
    with suppress(OSError):  # if standard error was closed
        sys.stdout.flush()
    with suppress(OSError):  # discards the rest, which would fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        sys.exit(_PIPE_CLOSED)
    _fail(f"standard output: {reason}")


class _Screen(logging.Handler):
    """Prints to the current standard error, which a live line replaces while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


def _show_log() -> None:
    """Prints the package's log as plain lines, however else logging is configured."""
    handler = _Screen()
    handler.setFormatter(logging.Formatter("revbis: %(message)s"))
    logger = logging.getLogger("revbis")
    logger.handlers, logger.propagate = [handler], False


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"revbis: warning: {message}", file=sys.stderr)
