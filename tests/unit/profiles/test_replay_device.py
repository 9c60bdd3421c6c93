"""The replay device: recorded points exactly, others refused with the nearest recorded ones."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from heshare.devices.device_model import co_run
from heshare.devices.emulated_device import EmulatedDevice
from heshare.ops.open_device import open_device
from heshare.profiles import store
from heshare.profiles.recorder import record
from heshare.profiles.replay_device import ReplayDevice
from heshare.profiles.visit import MeasurementProtocol, Setup
from heshare.shared.errors import InputError, UnansweredError
from heshare.testing.device_contract import DeviceContract
from heshare.world.catalogue import gpu, resident

T4 = gpu("T4")
QUICK = MeasurementProtocol(repeats=1)
SETS = (
    ["mobilenet:4"],
    ["mobilenet:4@50"],
    ["resnet50:8@50"],
    ["mobilenet:4@50", "resnet50:8@50"],
    ["vgg19:8@60", "resnet50:8@50", "vgg19:8@60"],
)


def _table(clocks: tuple[int, ...] = (T4.max_mhz,)) -> pd.DataFrame:
    setups = [Setup(tuple(map(resident, names)), clock) for names in SETS for clock in clocks]
    return record(EmulatedDevice(T4), [point for setup in setups for point in setup.points()], protocol=QUICK)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return _table((T4.max_mhz, 900))


@pytest.fixture
def device(table: pd.DataFrame) -> ReplayDevice:
    return ReplayDevice(table)


class TestReplayDevice(DeviceContract):
    @pytest.fixture
    def device(self, table: pd.DataFrame) -> ReplayDevice:
        return ReplayDevice(table)


def _run(device: ReplayDevice, *names: str) -> None:
    for task, name in enumerate(names):
        target = resident(name)
        device.start(task, target.workload, target.mps_pct)


def test_recorded_set(device: ReplayDevice) -> None:
    """A recorded set is replayed as it was measured."""
    _run(device, *SETS[4])
    device.set_clock(900)
    truth = co_run(T4, [resident(name) for name in SETS[4]], 900)
    reading = device.read()
    assert reading.power_w == pytest.approx(truth.power_w, rel=1e-6)
    assert reading.sm_mhz == pytest.approx(truth.sm_mhz, rel=1e-6)
    assert [reading.residents[task].time_s for task in range(3)] == pytest.approx(
        [task.time_s for task in truth.tasks], rel=1e-6
    )
    assert reading.sm_util_pct == pytest.approx(min(100, sum(task.sm_util_pct for task in truth.tasks)), rel=1e-6)
    assert device.provenance == "emulated"


@pytest.mark.parametrize(
    ("names", "clock", "nearest"),
    [
        (["resnet50:8@60"], None, "resnet50:8@50 at 1590 MHz"),
        (["mobilenet:4"], 885, "mobilenet:4@100 at 900 MHz"),
        (["mobilenet:4@50", "resnet50:8@40"], 900, r"mobilenet:4@50\+resnet50:8@50 at 900 MHz"),
    ],
)
def test_unrecorded_set(device: ReplayDevice, names: list[str], clock: int | None, nearest: str) -> None:
    """A set that was not recorded is refused."""
    _run(device, *names)
    device.set_clock(clock)
    for method in (device.read, device.next_event_s, lambda: device.advance(1.0)):
        with pytest.raises(UnansweredError, match=f"Nearest recorded: {nearest}"):
            method()
    for task in range(len(names)):
        device.stop(task)
    assert device.read().residents == {}


def test_unmeasured_task(table: pd.DataFrame) -> None:
    """A set in which a task was not measured is refused."""
    device = ReplayDevice(table[(table["co_runners"] == "") | (table["workload"] != "resnet50")])
    _run(device, *SETS[3])
    with pytest.raises(UnansweredError, match="only without measuring resnet50:8@50"):
        device.read()


def test_open_device(table: pd.DataFrame, tmp_path: Path, checkout: Path) -> None:
    """A table is replayed by its path."""
    path = store.write(table, tmp_path / "profile.csv")
    assert open_device(f"replay:{path}").gpu == T4
    with pytest.raises(InputError, match="A100"):
        open_device(f"replay:{checkout / 'data/profiles/emulated'}")
    with pytest.raises(InputError, match="no such file"):
        open_device(f"replay:{tmp_path / 'none.csv'}")
