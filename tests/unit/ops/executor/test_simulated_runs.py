"""Runs on a simulated machine under faults of a seed; and that the simulator finds an executor that is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.broken_executors import BROKEN, NOT_SIMULATED
from support.simulator.simulation import crash_at_every_write, simulate

MOST_SEEDS = 200
"""In so many seeds each broken executor must be found; most are in the first ten."""


def first_found(name: str) -> int | None:
    """Return the first seed under which a broken executor breaks a promise."""
    return next((seed for seed in range(MOST_SEEDS) if simulate(seed, name).violations), None)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_no_seed_breaks_a_promise(first):
    for seed in range(first, first + 10):
        assert not simulate(seed).violations, seed


@pytest.mark.slow
def test_four_hundred_seeds_break_no_promise():
    for seed in range(40, 440):
        assert not simulate(seed).violations, seed


@pytest.mark.slow
def test_a_crash_at_every_change_of_every_file_loses_nothing():
    assert crash_at_every_write() > 120


@pytest.mark.slow
def test_a_seed_replays_in_another_process():
    program = "from support.simulator.simulation import simulate; print([simulate(seed).digest for seed in (3, 5)])"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == str([simulate(seed).digest for seed in (3, 5)])


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_executor_is_found(name):
    assert first_found(name) is not None


@pytest.mark.parametrize("test", NOT_SIMULATED.values())
def test_faults_that_are_not_simulated_have_tests_over_real_processes(checkout: Path, test):
    file, _, name = test.partition("::")
    assert f"def {name}(" in (checkout / file).read_text(encoding="utf-8")
