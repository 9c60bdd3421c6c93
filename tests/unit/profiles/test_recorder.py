"""The recorder on the emulated device: the model's values within the noise, and resumed recordings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from heshare.devices.device import Reading
from heshare.devices.device_model import co_run
from heshare.devices.emulated_device import EmulatedDevice
from heshare.ops.open_device import emulated
from heshare.ops.recording.profile_device import record_points
from heshare.ops.recording.regenerate_profiles import regenerate
from heshare.profiles import design, store
from heshare.profiles.visit import MeasurementProtocol
from heshare.shared.errors import DeviceError, InputError
from heshare.world.catalogue import gpu
from heshare.world.workload import parse_resident

QUICK = MeasurementProtocol(repeats=3)
T4 = gpu("T4")


def _points(count: int = 12) -> list[design.Point]:
    return design.samples(T4, count, rng=np.random.default_rng(3))


class Failing(EmulatedDevice):
    """A device that breaks when it starts its n-th task."""

    def __init__(self, after: int) -> None:
        noise = emulated("T4")._noise  # the same noise, so that the tables can be compared
        super().__init__(T4, noise=noise)
        self.remaining = after

    def start(self, *arguments: object, **options: object) -> None:
        self.remaining -= 1
        if self.remaining < 0:
            raise DeviceError("broken")
        super().start(*arguments, **options)  # type: ignore[arg-type]


def test_exact() -> None:
    """A device without noise is recorded exactly."""
    points, device = _points(), EmulatedDevice(T4)
    table = record_points(device, points, protocol=QUICK)
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
    assert (device.read().residents, device.read().requested_mhz) == ({}, None)


def test_repeat_noise() -> None:
    """Repeat noise has the stated size."""
    points = design.references(T4)
    table = record_points(emulated("T4"), points, protocol=MeasurementProtocol(repeats=8))
    truth = np.array([co_run(T4, (point.target,), point.sm_mhz).tasks[0].time_s for point in points])
    assert 0.0025 < np.std(table["time_s"] / truth - 1) < 0.0045  # 0.0099 / sqrt(8) = 0.0035
    assert 0.008 < np.mean(table["time_std_s"] / table["time_s"]) < 0.012
    assert 0.0028 < np.mean(table["power_std_w"] / table["power_w"]) < 0.0044


def test_interruption(tmp_path: Path) -> None:
    """An interrupted recording continues, though its journal is torn; a failure leaves no task behind."""
    points, journal = _points(), tmp_path / "recording.jsonl"
    device = Failing(after=40)
    with pytest.raises(DeviceError, match="broken"):
        record_points(device, points, protocol=QUICK, journal=journal)
    assert device.read().residents == {}
    kept = journal.read_text(encoding="utf-8").splitlines()
    assert 3 < len(kept) < 2 + 3 * len(points)
    journal.write_text(journal.read_text(encoding="utf-8") + '{"visit":{"setup":"mob', encoding="utf-8")
    table = record_points(emulated("T4"), points, protocol=QUICK, journal=journal)
    lines = journal.read_text(encoding="utf-8").splitlines()
    assert lines[: len(kept)] == kept
    assert len(lines) == 2 + 3 * len(points)
    assert store.as_csv(table) == store.as_csv(record_points(emulated("T4"), points, protocol=QUICK))
    again = Failing(after=0)
    assert store.as_csv(record_points(again, points, protocol=QUICK, journal=journal)) == store.as_csv(table)


def test_other_journal(tmp_path: Path) -> None:
    """A journal of another recording, or one that repeats a visit, is refused."""
    journal = tmp_path / "recording.jsonl"
    record_points(EmulatedDevice(T4), _points(4), protocol=QUICK, journal=journal)
    before = journal.read_bytes()
    with pytest.raises(InputError, match="row 1"):
        record_points(EmulatedDevice(T4), _points(4)[1:], protocol=QUICK, journal=journal)
    with pytest.raises(InputError, match="repeats=4"):
        record_points(EmulatedDevice(T4), _points(4), protocol=MeasurementProtocol(repeats=4), journal=journal)
    assert journal.read_bytes() == before

    journal.write_bytes(before + before.splitlines(keepends=True)[-1])
    with pytest.raises(InputError, match="a second time"):
        record_points(EmulatedDevice(T4), _points(4), protocol=QUICK, journal=journal)


@pytest.mark.nightly
def test_committed_profiles(tmp_path: Path, checkout: Path) -> None:
    """The committed profiles are reproduced."""
    kept = checkout / "data" / "profiles" / "emulated"
    for table in regenerate(tmp_path, progress=False):
        for path in (table, table.with_name("manifest.json")):
            committed = kept / path.relative_to(tmp_path)
            assert path.read_bytes() == committed.read_bytes(), "run heshare calibrate --profiles"
    table = store.read(kept)
    assert len(table) == design.SAMPLES + sum(len(design.references(gpu(name))) for name in ("T4", "V100", "A100"))


def test_no_counters() -> None:
    """A device without counters is refused."""

    class Blind(EmulatedDevice):
        def read(self) -> Reading:
            full = super().read()
            return Reading(full.time_s, None, full.sm_mhz, full.power_w, full.energy_j, full.residents)

    with pytest.raises(DeviceError, match="sm_util_pct"):
        record_points(Blind(T4), _points(1), protocol=QUICK)


def test_slow_tasks(tmp_path: Path) -> None:
    """Windows are long enough for slow tasks."""
    slow = design.Point(parse_resident("bert_large:32@10"), (), T4.clocks_mhz[0])
    protocol = MeasurementProtocol(repeats=1, window_s=0.001, warmup_s=0.1, iterations=3)
    table = record_points(EmulatedDevice(T4), [slow], protocol=protocol, journal=tmp_path / "journal")
    visit = json.loads((tmp_path / "journal").read_text(encoding="utf-8").splitlines()[-1].split("\t")[0])["visit"]
    assert visit["window_s"] == pytest.approx(3 * table["time_s"][0])
    assert visit["took_s"] == pytest.approx(visit["window_s"] + 0.1)
    assert visit["done"][0] == pytest.approx(3)


def test_other_clocks() -> None:
    """A GPU with other clocks than the catalogue is refused before it is measured."""
    other = EmulatedDevice(replace(T4, clocks_mhz=(300, 1605)))
    with pytest.raises(InputError, match="1605 MHz"):
        record_points(other, _points(1), protocol=QUICK)
