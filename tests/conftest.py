"""What every test shares: deterministic hypothesis, the checkout's folder, a source of randomness."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from support.made_once import made_once
from support.smoke_run import smoke

from heshare.devices.constants import Constants, default
from heshare.devices.emulated_device import EmulatedDevice
from heshare.devices.noise import NoiseModel
from heshare.devices.timing_effects import Key, Timing
from heshare.shared.extras import without_uri_grammars
from heshare.world.catalogue import gpu

# Many files import it; its grammars would take each worker 4 s.
with without_uri_grammars():
    import jsonschema  # noqa: F401

# The same examples on every machine and in every run; a slow machine is no failure.
settings.register_profile(
    "heshare",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("heshare")

# Programs that tests start find the package and `support` (`python -m support.spin_worker`).
_TESTS = Path(__file__).resolve().parent
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(_TESTS.parent), str(_TESTS), os.environ.get("PYTHONPATH")))
)

# A runner in the background, or under nohup, ignores these; what it starts would ignore them too.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, usual)

SLOW_FIXTURES = {"smoke_results", "fresh_calibration"}
"""Fixtures that take 2 s and more: tests which use them are slow."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def kept_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep cells of sweeps also where the code differs from its commit, as a developer's does."""
    monkeypatch.setattr("heshare.lab.sweeps.sweep.CHANGED", "never")


@pytest.fixture(scope="session")
def checkout() -> Path:
    return Path(__file__).resolve().parents[1]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240601)


@pytest.fixture(scope="session")
def smoke_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of one smoke run of all notebooks."""
    return made_once(tmp_path_factory, "smoke", lambda folder: smoke(folder / "figures", "1")) / "figures"


@pytest.fixture(scope="session")
def fresh_calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tables that a new fit of the device model writes (25 s)."""
    from heshare.lab.calibration import calibrate

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calibrate.files, "write_text", lambda path, text: (folder / path.name).write_text(text))
            calibrate.recalibrate()

    return made_once(tmp_path_factory, "calibration", make)


@pytest.fixture(scope="session")
def results_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of made-up outputs with their pages."""
    from support.made_up_outputs import write_outputs

    from heshare.paper.claims import claim_table
    from heshare.paper.page import results_page

    def make(top: Path) -> None:
        copies = write_outputs(top / "figures")
        results_page.write(top / "figures", claim_table.write(top / "figures"), copies)

    return made_once(tmp_path_factory, "results", make) / "figures"


@pytest.fixture(scope="session")
def made_up_h100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a made-up recording that says it was measured: an H100 whose truth is not the shipped model's."""
    from heshare.ops.recording.profile_device import profile  # not at the top: tests of the stages run without ops

    noise = NoiseModel(np.random.default_rng(3), time_cv=0.02, power_cv=0.01)
    device = _MadeUp(gpu("H100"), noise=noise, constants=_other_truth())
    how = {"budget_s": 3600.0, "clocks": False, "command": "made up for tests", "progress": False}
    return made_once(tmp_path_factory, "measured", lambda folder: profile(device, folder, **how)) / "H100"


class _MadeUp(EmulatedDevice):
    provenance = "measured"


def _other_truth() -> Constants:
    known = default()
    return replace(known, timing=known.timing.with_change(_slower)).with_power("H100", dynamic_w=330.0)


def _slower(key: Key, one: Timing) -> Timing:
    return replace(one, work_s=1.4 * one.work_s, host_s=0.7 * one.host_s)
