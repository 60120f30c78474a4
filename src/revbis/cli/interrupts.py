"""Ctrl-C: the command says at once what it does, whatever it is computing.

Python calls signal handlers between two of its own steps, and the backward pass of a large network
is a single one. A thread therefore hears signals too: it prints, and ends the process if the main
thread does not.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

CODE = 128 + signal.SIGINT
_GRACE_SECONDS = 1.5  # in which the main thread may tidy up
_SHOW_CURSOR = "\x1b[?25h"  # a live line hides it
_writers: list[int] = []  # the ends of pipes that signals are written to


@contextmanager
def ending_soon() -> Iterator[list[int]]:
    """Within the context, Ctrl-C raises KeyboardInterrupt, and ends the process soon.

    Yields:
        The interrupts so far. An import that one disturbs may raise something else for it, or only
        print that it was ignored; that is not printed.
    """
    heard: list[int] = []
    if not _is_heard_here():
        yield heard
        return

    def handle(number: int, _: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    unraisable = sys.unraisablehook
    sys.unraisablehook = lambda problem: None if heard else unraisable(problem)
    before = signal.signal(signal.SIGINT, handle)
    over = threading.Event()
    try:
        with _listening(lambda _: _leave_unless(over)):
            try:
                yield heard
            finally:
                over.set()
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = unraisable


@contextmanager
def stop_signals(*, leave: bool = True) -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM for a clean exit; a second one raises KeyboardInterrupt.

    Args:
        leave: End the process soon after the second one, even if it is in a long computation.
    """
    caught: list[int] = []
    handled: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        handled.append(number)
        if len(handled) > 1:
            raise KeyboardInterrupt
        if not caught:
            caught.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        with finishing("finishing this step, then saving", caught, leave=leave):
            yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def finishing(text: str, caught: list[int] | None = None, *, leave: bool = True) -> Iterator[None]:
    """Within the context, the first signal leaves as much time as is needed, and prints why.

    Args:
        text: What the time is needed for.
        caught: Where the first signal goes, too.
        leave: End the process soon after a second one.
    """
    told: list[int] = []
    over = threading.Event()

    def hear(number: int) -> None:
        told.append(number)
        if len(told) > 1:
            if leave:
                _leave_unless(over)
            return
        if caught is not None and not caught:
            caught.append(number)
        print(f"\nrevbis: {text}; press Ctrl-C again to end now", file=sys.stderr, flush=True)

    with _listening(hear):
        try:
            yield
        finally:
            over.set()


@contextmanager
def _listening(hear: Callable[[int], None]) -> Iterator[None]:
    """Calls `hear` with every signal that has a handler, in a thread, when it arrives."""
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _writers.append(writer)
    thread = threading.Thread(target=_listen, args=(reader, hear), daemon=True)
    thread.start()
    try:
        yield
    finally:
        if writer in _writers:  # not in a forked process
            signal.set_wakeup_fd(before)
            _writers.remove(writer)
            os.close(writer)
            thread.join()
            os.close(reader)


def _forget() -> None:
    """In a forked process: its signals are not this one's, though it has the pipe, too."""
    if _writers:
        with suppress(ValueError):  # not the main thread
            signal.set_wakeup_fd(-1)
    for writer in _writers:
        os.close(writer)  # else the listening thread would wait for this process to end
    _writers.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)


def _listen(reader: int, hear: Callable[[int], None]) -> None:
    while byte := os.read(reader, 1):
        if byte[0] in (signal.SIGINT, signal.SIGTERM):
            hear(byte[0])


def _leave_unless(over: threading.Event) -> None:
    """Ends the process, unless the main thread gets that far in the time it has."""
    if not over.wait(_GRACE_SECONDS):
        cursor = _SHOW_CURSOR if os.isatty(2) else ""
        os.write(2, f"{cursor}\nrevbis: interrupted\n".encode())
        os._exit(CODE)


def _is_heard_here() -> bool:
    """Whether Ctrl-C would raise KeyboardInterrupt in this thread: not if it is ignored."""
    here = threading.current_thread() is threading.main_thread()
    return here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
