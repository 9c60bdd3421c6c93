"""Workloads known by measurements: the model gives back what was measured, and refuses what cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heshare as hs
from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.lab.advice.measured import Measured, busy_parts, place
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.workload import Resident

GPU = catalogue.gpu("H100")


def alone(one: Measured, busy: float):
    constants = place(default(), GPU, [(one, busy)])
    return co_run(GPU, (Resident(one.workload),), constants=constants)


@given(
    sm_pct=st.floats(1.01, 95.0),
    dram_share=st.floats(0.0, 1.0),
    power_w=st.floats(200.0, 600.0),
    per_s=st.floats(0.01, 1e4),
    place_of=st.integers(0, 2),
)
def test_alone(sm_pct, dram_share, power_w, per_s, place_of):
    """Alone, the model gives back the rate, the power and the activity that were measured."""
    low = 100.0 * default().utilisation.dram_per_sm * sm_pct / 100.0  # what SM activity alone reports
    room = (100.0 - sm_pct) * default().utilisation.dram_per_memory  # what fits beside it
    dram_pct = min(99.0, low + dram_share * 0.95 * room)
    one = Measured("mine", per_s, sm_pct, power_w, dram_pct, small=True)
    answer = alone(one, busy_parts(one, default())[place_of])
    (task,) = answer.tasks
    assert 1.0 / task.time_s == pytest.approx(per_s, rel=1e-3)
    assert task.sm_util_pct == pytest.approx(sm_pct, rel=1e-3)
    assert task.dram_util_pct == pytest.approx(one.dram_pct, rel=2e-3)
    assert answer.power_w == pytest.approx(power_w, rel=2e-3)


def test_busy_parts():
    """Kernels run between the active part and all of the time."""
    free = Measured("mine", 10.0, 30.0)
    assert busy_parts(free, default()) == pytest.approx((0.65, 0.3, 1.0))
    assert busy_parts(Measured("mine", 10.0, 30.0, gpu_pct=60.0), default()) == pytest.approx((0.6, 0.6, 0.6))
    assert busy_parts(Measured("mine", 10.0, 30.0, gpu_pct=20.0), default())[0] == pytest.approx(0.3)


def test_parse():
    """A text is read as a measurement."""
    assert Measured.parse("asr=per_s:104, w:155,sm:6") == Measured("asr", 104.0, 6.0, 155.0)
    assert hs.Measured is Measured


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("asr=per_s:104", "sm:6"),
        ("asr=per_s:104,sm:6,sm:7", "once"),
        ("asr=per_s:104,sm:6,volts:7", "volts"),
        ("asr=per_s:many,sm:6", "many"),
        ("asr=per_s:104,sm:160", "sm_pct: found 160.0"),
        ("asr=per_s:nan,sm:6", "per_s: found nan"),
        ("ASR=per_s:104,sm:6", "'ASR'"),
    ],
)
def test_wrong_texts(text, said):
    """A text that is no measurement is refused."""
    with pytest.raises(InputError) as refused:
        Measured.parse(text)
    assert said in str(refused.value)


def test_idle_power():
    """A power at idle is refused."""
    with pytest.raises(InputError, match="more than the idle 70 W of H100"):
        alone(Measured("mine", 10.0, 30.0, power_w=60.0), 0.5)
