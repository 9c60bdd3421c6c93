"""Logs of nvidia-smi as measurements, and DCGM's ratios."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import heshare as hs
from heshare.lab.advice.meter_log import read_meter, reading_of
from heshare.shared.errors import InputError

HEADER = "timestamp, power.draw [W], clocks.current.sm [MHz], utilization.gpu [%]"
POWERS_W = (62.5, 150.0, 160.0, 61.0, 170.0, 62.0)
UTILISATIONS = (0, 80, 90, 0, 100, 0)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write_text(text: str) -> Path:
        path = tmp_path / "smi.csv"
        path.write_text(text)
        return path

    return write_text


def log(units: bool) -> str:
    watts, mhz, percent = (" W", " MHz", " %") if units else ("", "", "")
    rows = [
        f"2018/10/10 13:06:0{second}.419, {power}{watts}, 1410{mhz}, {busy}{percent}"
        for second, (power, busy) in enumerate(zip(POWERS_W, UTILISATIONS, strict=True))
    ]
    return "\n".join([HEADER, *rows, ""])


@pytest.mark.parametrize("units", [True, False], ids=["units", "nounits"])
def test_busy_part(write, units: bool) -> None:
    """Means and spread are those from the first to the last busy sample, pauses included."""
    (reading,) = read_meter(write(log(units)))
    assert reading.power_w == pytest.approx(np.mean(POWERS_W[1:5]))
    assert reading.power_spread_w == pytest.approx(np.std(POWERS_W[1:5]))
    assert (reading.sm_mhz, reading.gpu_pct, reading.samples) == (1410.0, 67.5, 4)


def test_without_utilisation(write) -> None:
    """Without a utilisation the busy part is where power is high; unknown columns stay unknown."""
    rows = "\n".join(f"{power} W, [N/A]" for power in (50, 50, 300, 310, 50))
    (reading,) = read_meter(write(f"power.draw [W], clocks.sm [MHz]\n{rows}\n"))
    assert (reading.power_w, reading.samples) == (305.0, 2)
    assert np.isnan([reading.sm_mhz, reading.gpu_pct]).all()


def test_several_gpus(write) -> None:
    """Samples of several GPUs are told apart, and one must be named."""
    rows = [f"t{at}, {gpu}, {100 + 50 * gpu} W, 9{gpu} %" for at in range(3) for gpu in (0, 1)]
    path = write("\n".join(["timestamp, index, power.draw [W], utilization.gpu [%]", *rows]))
    assert [(each.gpu, each.power_w) for each in read_meter(path)] == [("0", 100.0), ("1", 150.0)]
    assert reading_of(path, 1).gpu_pct == 91.0
    for gpu, message in ((None, "2 GPUs: 0, 1"), ("7", "one of its GPUs: 0, 1")):
        with pytest.raises(InputError, match=message):
            reading_of(path, gpu)
    one = hs.Measured.parse(f"asr=per_s:104,sm:6,log:{path}#1")
    assert (one.power_w, one.gpu_pct) == (150.0, 91.0)
    assert one == hs.Measured.of_log("asr", path, per_s=104.0, sm_pct=6.0, gpu=1)
    mixed = write(
        "\n".join(["timestamp, power.draw [W]", *[f"t{at}, {100 + 50 * gpu} W" for at in "ab" for gpu in (0, 1)]])
    )
    with pytest.raises(InputError, match="column index or uuid"):
        read_meter(mixed)


OTHERS = {
    "GPU-Z": ("Date , GPU Clock [MHz] , Board Power Draw [W] ,\n2024-01-01 , 1,5 , 30,2 ,\n", "a log of nvidia-smi"),
    "dmon": ("# gpu   pwr gtemp\n    0    43    35\n", "a log of nvidia-smi"),
    "semicolons": ("power.draw [W];clocks.sm [MHz]\n53,48 W;1410 MHz\n", "a log of nvidia-smi"),
    "no header": ("2018/10/10 13:06:03.419, 53.48 W\n", "a log of nvidia-smi"),
    "milliwatts": ("power.draw [W]\n53480 mW\n", "row 2, column power.draw"),
    "decimal comma": ('power.draw [W]\n"53,48 W"\n', "row 2, column power.draw"),
    "no reading": ("power.draw [W]\n[N/A]\n[Not Supported]\n", "none of the log"),
    "no sample": ("power.draw [W]\n", "no sample"),
    "idle": ("power.draw [W], utilization.gpu [%]\n50 W, 0 %\n", "0 % of the log"),
}


@pytest.mark.parametrize(("text", "message"), OTHERS.values(), ids=OTHERS)
def test_other_logs(write, text: str, message: str) -> None:
    """Logs of other tools, cells in other units and logs without a reading are refused."""
    with pytest.raises(InputError, match=message):
        read_meter(write(text))


def test_lying_sensor(write) -> None:
    """Power far above the card's limit is no reading, and a log of nothing else is refused."""
    head = "power.draw [W], power.limit [W]\n"
    (reading,) = read_meter(write(f"{head}150 W, 175 W\n593 W, 175 W\n160 W, 175 W\n"))
    assert reading.power_w == 160.0
    assert "593 W" in reading.notes[0]
    with pytest.raises(InputError, match="593 W"):
        read_meter(write(f"{head}593 W, 175 W\n"))


@pytest.mark.parametrize("field", ["sm", "dram", "gpu"])
@pytest.mark.parametrize("value", ["0.45", "1", "0.3"])
def test_ratios(field: str, value: str) -> None:
    """An activity of at most 1 is asked about: DCGM writes ratios."""
    others = "per_s:104" if field == "sm" else "per_s:104,sm:30"
    with pytest.raises(InputError, match=f"Write {field}:{100 * float(value):g}"):
        hs.advise("H100", f"asr={others},{field}:{value}")
    with pytest.raises(InputError, match="Write sm:6 "):
        hs.Measured("asr", 104.0, 0.06)
    assert getattr(hs.Measured.parse(f"asr={others},{field}:{value}%"), f"{field}_pct") == float(value)
