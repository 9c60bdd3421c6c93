"""Table II's features against values computed by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heshare.prediction import features
from heshare.prediction.features import (
    FEATURE_NAMES,
    FeatureEncoder,
    ReferenceFeatures,
    is_reference,
    pad,
    profile_features,
)
from heshare.profiles import store
from heshare.shared.errors import InputError
from heshare.world.catalogue import gpu
from heshare.world.workload import Workload, parse_resident

T4 = gpu("T4")


def _row(text: str, mhz: int = 1590, co_runners: str = "", **cells: float) -> list[object]:
    resident = parse_resident(text)
    values = {"time_s": 0.01, "power_w": 60.0, "sm": 80.0, "dram": 40.0, "l2": 30.0} | cells
    energy_j = values["time_s"] * values["power_w"]
    head = [
        "T4",
        "emulated",
        resident.workload.model,
        resident.workload.batch_size,
        "mixed",
        "eager",
        resident.mps_pct,
        mhz,
        1590.0,
    ]
    middle = [co_runners, values["time_s"], 0.0, values["power_w"], 0.0, energy_j]
    return [*head, *middle, values["sm"], values["dram"], values["l2"], 20.0, 1, False]


def _table(*rows: list[object]) -> pd.DataFrame:
    return store.make_table(
        [
            _row("resnet50:4", time_s=0.010, power_w=60, sm=80, dram=40, l2=30),
            _row("resnet50:16", time_s=0.040, power_w=68, sm=90, dram=48, l2=36),
            _row("vgg19:8", time_s=0.050, power_w=70, sm=100, dram=50, l2=20),
            _row("mobilenet:8", time_s=0.005, power_w=40, sm=25, dram=30, l2=10),
            *rows,
        ]
    )


def test_two_co_runners() -> None:
    """Features of a task beside two co-runners, by hand; nothing is occupied beside a task alone."""
    # At half the clock. vgg19, u = 1: g = 2, v = 1, at 50 % r = 0.5: SMs 50 %, bandwidth 0.5 x 50 / 2 = 12.5 %,
    # L2 0.5 x 20 / 2 = 5 %, power 0.5 x 0.5 x 50 = 12.5 W. mobilenet, u = 0.25: g = 1.25, v = 0.4, at 30 % r = 0.75:
    # SMs 30 %, bandwidth 0.75 x 30 / 1.25 = 18 %, L2 0.75 x 10 / 1.25 = 6 %, power 0.75 x 0.5 x 0.4 / 0.25 x 20 = 12 W.
    # The task itself, u = 0.8: g = 1.8, v = 8 / 9, r = 0.45: SMs 40 %, 120 % with the others.
    row = _row("resnet50:4@40", mhz=795, co_runners="mobilenet:8@30+vgg19:8@50")
    features_of = profile_features(_table(row))
    alone, found = features_of[2], features_of[-1]
    nothing = ("occupied_sm_pct", "occupied_dram_pct", "occupied_l2_pct")
    assert [alone[FEATURE_NAMES.index(name)] for name in nothing] == [0, 0, 0]
    assert alone[features.OCCUPIED_POWER] == 20
    alone_w = ReferenceFeatures(_table(row)).task("T4", Workload("resnet50", 4))[4] - 20
    assert found[features.GUESSED_POWER] == pytest.approx(20 + (24.5 + 0.4 * 0.5 / 0.8 * alone_w) / 1.2, rel=1e-5)
    encoded = dict(zip(FEATURE_NAMES, found[features.TABLE_II], strict=True))
    assert encoded == pytest.approx(
        {
            "sm_util_pct": 80,
            "dram_util_pct": 40,
            "l2_util_pct": 30,
            "alone_s": 0.01,
            "mps_pct": 40,
            "clock_pct": 50,
            "occupied_sm_pct": 80,
            "occupied_dram_pct": 30.5,
            "occupied_l2_pct": 11,
            "occupied_power_w": 20 + 12.5 + 12,
            "sm_count": 40,
            "mem_bw_gbs": T4.mem_bw_gbs,
            "l2_mib": T4.l2_mib,
            "idle_w": 20,
        },
        abs=1e-5,
    )


def test_many_sets() -> None:
    """Feature encoder encodes many sets at once and pads them."""
    encoder = FeatureEncoder(T4, ReferenceFeatures(_table()))
    texts = [("resnet50:4@40", "vgg19:8@50"), ("mobilenet:8@30",), ("vgg19:8@50", "resnet50:4@40")]
    sets = pad([encoder.ids(map(parse_resident, members)) for members in texts])
    rows = encoder.rows(sets, np.array([1590, 795, 1590]))
    assert rows.shape == (3, 2, 15)
    assert np.isnan(rows[1, 1]).all()
    assert np.array_equal(rows[0], rows[2, ::-1])
    assert rows[0, 1, features.OCCUPIED_SM] == pytest.approx(40, abs=1e-5)
    assert rows[1, 0, features.CLOCK] == 50


def test_between_batch_sizes() -> None:
    """Reference features are interpolated between batch sizes in logarithms."""
    references = ReferenceFeatures(_table())
    sm_pct, dram_pct, _, time_s, _ = references.task("T4", Workload("resnet50", 8))
    assert time_s == pytest.approx(0.02)
    assert sm_pct == pytest.approx(np.sqrt(80 * 90))
    assert dram_pct == pytest.approx(np.sqrt(40 * 48))
    assert references.task("T4", Workload("resnet50", 16))[3] == 0.04


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Workload("resnet50", 2), "inference batch sizes 4 to 16"),
        (Workload("resnet50", 32), "inference batch sizes 4 to 16"),
        (Workload("gpt2", 4), "reference rows of T4"),
        (Workload("resnet50", 4, "fp16"), "reference rows of T4"),
    ],
)
def test_not_recorded(workload: Workload, expected: str) -> None:
    """Workloads, batch sizes and GPUs that were not recorded are refused."""
    with pytest.raises(InputError, match=expected):
        ReferenceFeatures(_table()).task("T4", workload)
    with pytest.raises(InputError, match="A100"):
        FeatureEncoder(gpu("A100"), ReferenceFeatures(_table()))


def test_is_reference() -> None:
    """Reference rows are alone, at 100 % and at the top clock."""
    table = _table(_row("gpt2:4@90"), _row("gpt2:4", mhz=795), _row("gpt2:4", co_runners="vgg19:8@50"))
    assert is_reference(table).tolist() == [True] * 4 + [False] * 3


def test_off_grid() -> None:
    """Feature encoder refuses clocks off the grid."""
    encoder = FeatureEncoder(T4, ReferenceFeatures(_table()))
    assert encoder.clock(None) == 1590
    for off_grid in (0, 1583):
        with pytest.raises(InputError, match="a clock of its grid"):
            encoder.clock(off_grid)
