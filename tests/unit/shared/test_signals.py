"""Handlers of ending signals: callbacks at the end of a process, the stack of handlers, interrupted runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from heshare.shared.signals import Interrupted, InterruptHandler, handling


def output_of(code: str) -> list[str]:
    """Return the words that a program prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_at_end_calls_the_last_callback_first_and_each_once() -> None:
    code = """
from heshare.shared.signals import at_end
at_end(lambda: print("first"))
at_end(lambda: 1 / 0)
cancel = at_end(lambda: print("cancelled"))
at_end(lambda: print("last"))
cancel(); cancel()
"""
    assert output_of(code) == ["last", "first"]


def test_at_end_restores_the_handlers_of_signals() -> None:
    code = """
import signal
from heshare.shared.signals import at_end
mine = lambda number, frame: None
signal.signal(signal.SIGTERM, mine)
cancel = at_end(lambda: None)
print(signal.getsignal(signal.SIGTERM) is mine)
cancel()
print(signal.getsignal(signal.SIGTERM) is mine, signal.getsignal(signal.SIGHUP) is signal.SIG_DFL)
"""
    assert output_of(code) == ["False", "True", "True"]


def test_handling_calls_its_handler_for_a_signal_and_not_the_callbacks() -> None:
    code = """
import os, signal
from heshare.shared.signals import at_end, handling
with handling(lambda number: print(signal.Signals(number).name)):
    at_end(lambda: print("callback"))
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    assert output_of(code) == ["SIGTERM", "SIGINT", "True", "callback"]


def test_at_end_leaves_an_ignored_signal_ignored() -> None:
    code = """
import os, signal
from heshare.shared.signals import at_end, handling
signal.signal(signal.SIGHUP, signal.SIG_IGN)
at_end(lambda: print("callback"))
with handling(lambda number: print("handler")):
    os.kill(os.getpid(), signal.SIGHUP)
os.kill(os.getpid(), signal.SIGHUP)
print("end")
"""
    assert output_of(code) == ["end", "callback"]


def test_interrupt_handler_raises_once_and_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with handling(InterruptHandler()):
        with pytest.raises(Interrupted, match="SIGTERM") as error:
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert error.value.number == signal.SIGTERM
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_handling_calls_the_innermost_handler() -> None:
    numbers: list[tuple[str, int]] = []
    with handling(lambda number: numbers.append(("outer", number))):
        with handling(lambda number: numbers.append(("inner", number))):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert numbers == [("inner", signal.SIGTERM), ("outer", signal.SIGINT)]
