"""Handlers of ending signals for a time, and the exception by which a run ends in order."""

from __future__ import annotations

import os
import signal

import pytest

from heshare.shared.signals import ENDING_SIGNALS, Interrupted, InterruptHandler, handling


def test_handling() -> None:
    """The innermost handler is called, and the former ones are restored."""
    before = [signal.getsignal(number) for number in ENDING_SIGNALS]
    numbers: list[int] = []
    outer: list[int] = []
    with handling(outer.append):
        with handling(numbers.append):
            for number in ENDING_SIGNALS:
                os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGINT)
    assert (numbers, outer) == (list(ENDING_SIGNALS), [signal.SIGINT])
    assert [signal.getsignal(number) for number in ENDING_SIGNALS] == before


def test_ignored_signal() -> None:
    """As under `nohup`, which ignores SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    numbers: list[int] = []
    with handling(numbers.append):
        os.kill(os.getpid(), signal.SIGHUP)
    assert numbers == []
    assert signal.signal(signal.SIGHUP, before) == signal.SIG_IGN


def test_interrupt_handler() -> None:
    """The handler raises once."""
    with handling(InterruptHandler()):
        with pytest.raises(Interrupted, match="SIGTERM") as error:
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert error.value.number == signal.SIGTERM
