"""The recorder over the emulated device: the model's own figures within the noise, and resumable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heshare.devices.device import Reading
from heshare.devices.emulated import EmulatedDevice
from heshare.devices.model import co_run
from heshare.errors import DeviceError, InputError
from heshare.profiles import design, store
from heshare.profiles.columns import NAMES
from heshare.profiles.record import Settings, profile, record
from heshare.profiles.regenerate import emulated, open_device, regenerate
from heshare.world.catalogue import gpu
from heshare.world.workload import parse_resident

QUICK = Settings(repeats=3)
T4 = gpu("T4")


def _points(count: int = 12) -> list[design.Point]:
    return design.samples(T4, count, rng=np.random.default_rng(3))


class Failing(EmulatedDevice):
    """A device that breaks when it starts its n-th task."""

    def __init__(self, after: int) -> None:
        super().__init__(T4)
        self.left = after

    def start(self, *arguments: object, **options: object) -> None:
        self.left -= 1
        if self.left < 0:
            raise DeviceError("broken")
        super().start(*arguments, **options)  # type: ignore[arg-type]


def test_a_quiet_device_is_recorded_exactly() -> None:
    points = _points()
    table = record(EmulatedDevice(T4), points, settings=QUICK)
    for point, row in zip(points, table.itertuples(index=False), strict=True):
        truth = co_run(T4, (point.target, *point.co_runners), point.sm_mhz)
        assert row.time_s == pytest.approx(truth.tasks[0].time_s)
        assert row.power_w == pytest.approx(truth.power_w)
        assert row.energy_j == pytest.approx(truth.power_w * truth.tasks[0].time_s)
        assert row.sm_mhz_reached == pytest.approx(truth.sm_mhz)
        assert row.sm_util_pct == pytest.approx(min(100, sum(task.sm_util_pct for task in truth.tasks)))
        assert row.throttled == (truth.sm_mhz < point.sm_mhz)
        assert row.time_std_s == pytest.approx(0, abs=1e-9)
    assert table["idle_w"].nunique() == 1
    assert (table["repeats"] == 3).all()


def test_noise_repeats_as_badly_as_stated() -> None:
    points = design.references(T4)
    table = record(emulated("T4"), points, settings=Settings(repeats=8))
    truth = np.array([co_run(T4, (point.target,), point.sm_mhz).tasks[0].time_s for point in points])
    assert 0.0025 < np.std(table["time_s"] / truth - 1) < 0.0045  # 0.0099 / sqrt(8) = 0.0035
    assert 0.008 < np.mean(table["time_std_s"] / table["time_s"]) < 0.012
    assert 0.0028 < np.mean(table["power_std_w"] / table["power_w"]) < 0.0044


def test_the_device_is_left_idle_and_unlocked() -> None:
    device = EmulatedDevice(T4)
    record(device, _points(3), settings=QUICK)
    reading = device.read()
    assert reading.residents == {}
    assert reading.requested_mhz is None


def test_a_failure_leaves_no_task_behind() -> None:
    device = Failing(after=1)
    point = next(point for point in _points() if point.co_runners)
    with pytest.raises(DeviceError, match="broken"):
        record(device, [point], settings=QUICK)
    assert device.read().residents == {}


def test_an_interrupted_recording_goes_on(tmp_path: Path) -> None:
    points, journal = _points(), tmp_path / "journal.csv"
    with pytest.raises(DeviceError):
        record(Failing(after=12), points, settings=QUICK, journal=journal)
    kept = journal.read_text(encoding="utf-8").splitlines()
    assert 1 < len(kept) < 1 + len(points)
    journal.write_text(journal.read_text(encoding="utf-8") + "T4,emulated,resn", encoding="utf-8")
    device = Failing(after=1000)
    table = record(device, points, settings=QUICK, journal=journal)
    measured = sum(1 + len(point.co_runners) for point in points[len(kept) - 1 :])
    assert device.left == 1000 - measured
    assert journal.read_text(encoding="utf-8").splitlines()[: len(kept)] == kept
    assert len(journal.read_text(encoding="utf-8").splitlines()) == 1 + len(points)
    assert store.as_csv(table) == store.as_csv(record(EmulatedDevice(T4), points, settings=QUICK))


def test_a_journal_of_another_recording_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / "journal.csv"
    record(EmulatedDevice(T4), _points(4), settings=QUICK, journal=journal)
    before = journal.read_bytes()
    with pytest.raises(InputError, match=r"row 2: .*delete the journal"):
        record(EmulatedDevice(T4), _points(4)[1:], settings=QUICK, journal=journal)
    with pytest.raises(InputError, match="repeats"):
        record(EmulatedDevice(T4), _points(4), settings=Settings(repeats=4), journal=journal)
    assert journal.read_bytes() == before


def test_profile_writes_one_table_and_clears_its_journal(tmp_path: Path) -> None:
    path = profile(EmulatedDevice(T4), tmp_path, samples=5, seed=1, settings=QUICK)
    assert path == tmp_path / "T4" / "profile.csv"
    assert [one.name for one in path.parent.iterdir()] == ["profile.csv"]
    assert len(store.read(path)) == 90 + 5
    assert path.read_text(encoding="utf-8").splitlines()[0] == ",".join(NAMES)


def test_the_committed_profiles_are_what_the_recorder_makes(tmp_path: Path, checkout: Path) -> None:
    kept = checkout / "data" / "profiles" / "emulated"
    for path in regenerate(tmp_path, progress=False):
        committed = kept / path.relative_to(tmp_path)
        assert path.read_bytes() == committed.read_bytes(), "run python -m heshare.profiles.regenerate"
    table = store.read(kept)
    alone_at_the_top = (
        (table["co_runners"] == "") & (table["mps_pct"] == 100) & table["sm_mhz"].isin([1590, 1380, 1410])
    )
    assert (~alone_at_the_top).sum() == design.SAMPLES
    assert alone_at_the_top.sum() == 3 * 90


def test_a_device_without_counters_is_refused() -> None:
    class Blind(EmulatedDevice):
        def read(self) -> Reading:
            seen = super().read()
            return Reading(seen.time_s, None, seen.sm_mhz, seen.power_w, seen.energy_j, seen.residents)

    with pytest.raises(DeviceError, match="does not report sm_util_pct"):
        record(Blind(T4), _points(1), settings=QUICK)


def test_windows_hold_whole_iterations_of_slow_tasks() -> None:
    slow = design.Point(parse_resident("bert_large:32@10"), (), T4.clocks_mhz[0])
    device = EmulatedDevice(T4)
    table = record(device, [slow], settings=Settings(repeats=1, window_s=0.001, warmup_s=0, iterations=3))
    assert device.read().time_s == pytest.approx(3 * table["time_s"][0])


def test_devices_are_named() -> None:
    assert open_device("emulated:t4").gpu == T4
    for text in ("T4", "emulated:", "nvml:0"):
        with pytest.raises(InputError, match="emulated:GPU"):
            open_device(text)
    with pytest.raises(InputError, match="'T9'"):
        open_device("emulated:T9")
