"""Requests to a run by a file in its folder: read once, and done when nothing runs."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from support.run_entries import run_of

from heshare.ops.executor.execute import _told_end
from heshare.ops.executor.run_control import DRAIN, NAME, STOP, RunControl, RunDrained, RunSteering, ask
from heshare.ops.jobs.run_journal import RunJournal
from heshare.shared.errors import InputError, PolicyError
from heshare.shared.signals import Interrupted


class Lines:
    """Stands for the log of an operator."""

    def __init__(self):
        self.events = []

    def tell(self, event, text):
        self.events.append(event)


def test_a_drain_is_told_once_and_ends_the_run_once_nothing_runs(tmp_path):
    journal = RunJournal(tmp_path, run_of(1))
    log, control = Lines(), RunControl(tmp_path)
    steering = RunSteering(log, control)
    steering.hear(idle=True)
    ask(tmp_path, DRAIN)
    for _ in range(2):
        steering.hear(idle=False)
    assert log.events == ["drain"]
    with pytest.raises(RunDrained):
        steering.hear(idle=True)
    journal.close()


def test_a_stop_ends_the_run_and_does_not_concern_the_next_session(tmp_path):
    control = RunControl(tmp_path)
    (tmp_path / NAME).write_text(STOP)
    with pytest.raises(Interrupted):
        control.check()
    assert not RunControl(tmp_path).check()


def test_a_request_needs_a_run_and_its_executor(tmp_path):
    with pytest.raises(InputError, match="journal"):
        ask(tmp_path, DRAIN)
    RunJournal(tmp_path, run_of(1)).close()
    with pytest.raises(InputError, match="a run without an executor"):
        ask(tmp_path, DRAIN)


@pytest.mark.parametrize(
    ("error", "draining", "told", "noted"),
    [
        (RunDrained(), True, "end", "drained: nothing more was started"),
        (PolicyError("it gives up"), False, "end", "it gives up"),
        (Interrupted(signal.SIGTERM), False, "signal", "ended by SIGTERM"),
    ],
)
def test_the_end_of_a_run_is_told_and_noted(tmp_path, error, draining, told, noted):
    log, control, notes, finished = Lines(), RunControl(tmp_path), [], []
    control.draining = draining
    journal, observer = SimpleNamespace(append=notes.append), SimpleNamespace(finish=lambda: finished.append(True))
    raised = pytest.raises(Interrupted) if told == "signal" else nullcontext()
    with raised, _told_end(journal, RunSteering(log, control), observer, SimpleNamespace(known={})):
        raise error
    assert (log.events, finished) == ([told], [True])
    assert noted in notes[0].text
