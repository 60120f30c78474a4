"""Ctrl-C while a command computes what Python cannot interrupt, and while it imports."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

# Minutes in one call that hears no signal, as the backward pass of a large network is.
DEAF = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"
GUARD = 120  # seconds; nothing here takes as long


@contextmanager
def started(code: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed that it is about to be deaf."""
    words = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def wait_for_the_call(process: subprocess.Popen[str]) -> None:
    """Until it computes: what comes before the call takes far less processor time."""
    times = psutil.Process(process.pid).cpu_times
    before = times().user
    while process.poll() is None and times().user < before + 0.3:
        time.sleep(0.01)


def test_a_command_ends_in_the_middle_of_a_long_call() -> None:
    code = f"""
import revbis.cli
def compute():
    print("ready", flush=True)
    {DEAF}
revbis.cli._parse = lambda *_: compute
revbis.cli.main(["doctor"])
"""
    with started(code) as process:
        wait_for_the_call(process)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=GUARD)
    assert process.returncode == 130
    assert error.split("\n") == ["", "revbis: interrupted", ""]


def test_the_first_signal_is_answered_at_once_and_the_second_ends() -> None:
    code = f"""
from revbis.cli.interrupts import stop_signals
with stop_signals() as caught:
    print("ready", flush=True)
    {DEAF}
"""
    with started(code) as process:
        assert process.stderr is not None
        wait_for_the_call(process)
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == "\n"
        assert "finishing this step, then saving" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=GUARD)
    assert process.returncode == 130
    assert error.split("\n") == ["", "revbis: interrupted", ""]


def test_a_stop_is_collected_and_the_handlers_are_put_back() -> None:
    code = """
import os, signal
from revbis.cli.interrupts import stop_signals
before = signal.getsignal(signal.SIGTERM)
with stop_signals() as caught:
    os.kill(os.getpid(), signal.SIGTERM)
assert caught == [signal.SIGTERM]
assert signal.getsignal(signal.SIGTERM) == before
assert signal.set_wakeup_fd(-1) == -1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=GUARD)


def test_an_interrupted_import_is_one_line() -> None:
    """NumPy, for one, turns KeyboardInterrupt into an ImportError with advice of its own."""
    code = """
import os, signal
import revbis.cli
def disturbed():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("numpy.core.multiarray failed to import")
revbis.cli._parse = lambda *_: disturbed
revbis.cli.main(["doctor"])
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "\nrevbis: interrupted\n")


def test_an_interrupt_that_is_swallowed_ends_the_command_too() -> None:
    code = f"""
import os, signal
import revbis.cli
class Gone:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
def disturbed():
    Gone()  # Python prints what __del__ raises, and goes on
    {DEAF}
revbis.cli._parse = lambda *_: disturbed
revbis.cli.main(["doctor"])
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "\nrevbis: interrupted\n")


def test_an_ignored_interrupt_stays_ignored() -> None:
    """As for a command that a script runs in the background."""
    code = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from revbis.cli.interrupts import ending_soon
with ending_soon() as heard:
    os.kill(os.getpid(), signal.SIGINT)
assert heard == []
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=GUARD)


def test_signals_of_forked_processes_are_not_second_ones() -> None:
    """A terminal's Ctrl-C reaches forked workers too, which have the parent's pipe."""
    code = """
import os, signal, time
from revbis.cli.interrupts import stop_signals
os.setpgrp()
children, (reader, writer) = [], os.pipe()
with stop_signals() as caught:
    for _ in range(2):
        if not (child := os.fork()):
            os.write(writer, b".")
            while True:
                time.sleep(1)
        children.append(child)
        os.read(reader, 1)
    print("ready", flush=True)
    while not caught:
        time.sleep(0.01)
    time.sleep(2)  # longer than a second signal would leave
for child in children:  # which live on until here
    os.kill(child, signal.SIGKILL)
print("saved", flush=True)
"""
    with started(code) as process:
        os.killpg(process.pid, signal.SIGINT)
        output, error = process.communicate(timeout=GUARD)
    assert (process.returncode, output) == (0, "saved\n")
    assert error.count("then saving") == 1 and "interrupted" not in error


def test_a_program_that_only_uses_the_package_is_not_ended() -> None:
    code = """
import signal, time
from revbis.cli.interrupts import stop_signals
print("ready", flush=True)
try:
    with stop_signals(leave=False):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    time.sleep(2)
    print("goes on", flush=True)
"""
    with started(code) as process:
        output, _ = process.communicate(timeout=GUARD)
    assert (process.returncode, output) == (0, "goes on\n")
