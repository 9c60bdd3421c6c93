"""Runs on a simulated machine under faults of a seed; and that the simulator finds an executor that is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.broken_executors import BROKEN, NOT_SIMULATED
from support.simulator.simulation import crash_at_every_write, simulate

from heshare.devices.device_model import co_run
from heshare.world.catalogue import gpu, resident

MOST_SEEDS = 200
"""In so many seeds each broken executor must be found; most are in the first ten."""


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Functions of the device model are compiled before any run: numba writes its cache beside the package."""
    pair = [resident("resnet50:8@50"), resident("gpt2:8@50")]
    co_run(gpu("H100"), pair, power_cap_w=200.0)


def first_found(name: str) -> int | None:
    """Return the first seed under which a broken executor violates an invariant."""
    return next((seed for seed in range(MOST_SEEDS) if simulate(seed, name).violations), None)


@pytest.mark.parametrize("first", range(0, 40, 5))
def test_invariants(first):
    """No seed violates an invariant."""
    for seed in range(first, first + 5):
        assert not simulate(seed).violations, seed


@pytest.mark.nightly
def test_invariants_400_seeds():
    """400 more seeds violate no invariant."""
    for seed in range(40, 440):
        assert not simulate(seed).violations, seed


@pytest.mark.nightly
def test_crash_at_every_write():
    """A crash at every change of every file loses nothing."""
    assert crash_at_every_write() > 120


@pytest.mark.nightly
def test_replay():
    """A seed replays in another process."""
    program = "from support.simulator.simulation import simulate; print([simulate(seed).digest for seed in (3, 5)])"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == str([simulate(seed).digest for seed in (3, 5)])


@pytest.mark.nightly
@pytest.mark.parametrize("name", BROKEN)
def test_broken_executor(name):
    """Some seed finds each executor that is broken on purpose."""
    assert first_found(name) is not None


@pytest.mark.parametrize("test", NOT_SIMULATED.values())
def test_not_simulated(checkout: Path, test):
    """Faults that are not simulated have a test over real processes."""
    file, _, name = test.partition("::")
    assert f"def {name}(" in (checkout / file).read_text(encoding="utf-8")
