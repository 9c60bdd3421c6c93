"""Prices in the executor, over stand-ins for NVML and MPS: held starts, the cost in the report, resumed runs."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from heshare.lab.limits.prices.energy_signal import EnergySignal
from heshare.lab.limits.prices.price_aware import LEAST_S
from heshare.lab.limits.prices.price_terms import PriceTerms
from heshare.lab.limits.prices.signal_cost import journal_cost
from heshare.ops.executor import execute, run_journal
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.steering.dry_run import dry_run
from heshare.shared.errors import InputError
from heshare.testing.toy import ToyPredictor

TEXT = "jobs:\n  - {name: j, command: [sleep, '0.1'], like: 'resnet50:8', iterations: 100}\n"
FALLS = PriceTerms(EnergySignal((0.0, 3.0), (4e5, 1e5)), 10.0)
"""A price that falls 3 s after the start of the run."""


def run(doubles, terms):
    options = execute.ExecutorOptions(timeouts=Timeouts(poll_s=0.05, grace_s=0.5))
    return execute.execute(
        doubles.write(TEXT), doubles.folder / "run", policy="fifo", devices="nvml", predictor=ToyPredictor(),
        price=terms, options=options,
    )  # fmt: skip


def entries(doubles):
    return run_journal.read(doubles.folder / "run")


def actions(doubles):
    return [action for row in entries(doubles) if "decision" in row for action in row["decision"]["actions"]]


def starts_s(doubles):
    rows = [row["decision"] for row in entries(doubles) if "decision" in row]
    return [row["t"] for row in rows for action in row["actions"] if action[0] == "start"]


def test_a_start_waits_for_the_lower_price_and_the_report_has_the_cost(doubles):
    result = run(doubles, FALLS)
    assert result.complete
    (start_s,) = starts_s(doubles)
    assert start_s >= 3.0 - LEAST_S
    assert result.totals["cost"] == journal_cost(entries(doubles), FALLS.signal)
    assert "\ncost: " in (doubles.folder / "run" / "report.txt").read_text()
    assert doubles.traces() == []


def test_without_a_bound_the_cost_is_only_counted(doubles):
    assert run(doubles, PriceTerms(FALLS.signal, 0.0)).complete
    assert not any(action[0] == "wait" for action in actions(doubles))


def test_a_dry_run_shows_the_wait_and_the_cost(doubles):
    arguments = {"policy": "fifo", "devices": "nvml", "predictor": ToyPredictor(), "seed": 0, "allow_clocks": False}
    found = dry_run(doubles.write(TEXT), doubles.folder / "run", price=FALLS, **arguments)
    assert found.jobs["start_s"].tolist() == [3.0]
    assert found.totals["cost_active"] > 0


def test_a_run_that_is_ended_while_it_waits_goes_on_with_the_price_of_its_own_time(doubles):
    def end_once_it_waits():
        while not waits():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    def waits():
        try:
            return any(action[0] == "wait" for action in actions(doubles))
        except InputError:
            return False

    ended = threading.Thread(target=end_once_it_waits)
    ended.start()
    with pytest.raises(BaseException, match="SIGTERM"):
        run(doubles, PriceTerms(EnergySignal((0.0, 6.0), (4e5, 1e5)), 60.0))
    ended.join()
    assert starts_s(doubles) == []
    assert doubles.resume().complete
    sessions = [row["session"]["at"] for row in entries(doubles) if "session" in row]
    assert sessions[1] - sessions[0] + starts_s(doubles)[0] >= 6.0 - LEAST_S
