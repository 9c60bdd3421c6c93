"""GPUs and networks that are registered: bounds of their fields, at any time, again, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.recipes import GPU, WORKLOAD, described, registrations_end, write_rows

import heshare as hs
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.catalogue import register_gpus, register_models

CARD, NETWORK = described(GPU), described(WORKLOAD)
MAMBA = """mamba,title,Mamba 2.8B,,stated,x
mamba,description,one token of every sequence,,decided,x
mamba,load,none,,decided,x
mamba,kind,decode,,decided,x
mamba,layers,64,,stated,x
mamba,params_m,2770,1e6,stated,x
mamba,heads,80,,stated,x
mamba,kv_heads,80,,stated,x
mamba,head_dim,64,,stated,x
mamba,context,1024,tokens,decided,x
mamba,full_layers,0,,stated,x
mamba,state_mib,21,MiB,derived,x
"""


@pytest.fixture(autouse=True)
def no_registrations() -> Iterator[None]:
    with registrations_end():
        yield


def changed(rows: str, field: str, value: str) -> str:
    """Return rows with another value of a field."""
    found, count = re.subn(rf"(?m)^(\w+,{field}),[^,]+,", rf"\1,{value},", rows)
    assert count == 1
    return found


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("architecture", "cdna3"),
        ("architecture", "banana"),
        ("memory_mib", "22.5"),
        ("memory_mib", "24152899584"),
        ("mem_bw_gbs", "0.32"),
        ("mem_bw_gbs", "320000"),
        ("l2_mib", "49152"),
        ("fp32_tflops", "31000"),
        ("fp32_tflops", "0.031"),
        ("fp16_tflops", "124000"),
        ("tdp_w", "75000"),
        ("tdp_w", "0.075"),
        ("idle_w", "20000"),
        ("idle_w", "0.02"),
        ("clocks_mhz", "0:2:1"),
        ("clocks_mhz", "0.21 2.04"),
        ("clocks_mhz", "210000:2040000:15000"),
    ],
)
def test_wrong_gpu(tmp_path: Path, field: str, value: str) -> None:
    """A value of another magnitude than the field's unit, and an unknown architecture, are refused by row and field."""
    path = write_rows(tmp_path / "gpus.csv", "gpu", changed(CARD, field, value))
    with pytest.raises(InputError, match=f"{field} of N4") as caught:
        register_gpus(path)
    row = path.read_text().splitlines()[(caught.value.row or 0) - 1]
    assert row.startswith(f"N4,{field},{value},")
    assert (caught.value.file, caught.value.column) == (str(path), "value")


def test_idle_power(tmp_path: Path) -> None:
    """An idle power above the limit is refused, and both are named."""
    path = write_rows(tmp_path / "gpus.csv", "gpu", changed(CARD, "idle_w", "90"))
    with pytest.raises(InputError, match="idle_w 90 W and tdp_w 75 W of N4"):
        register_gpus(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gflops", "3.51e10"),
        ("gflops", "0"),
        ("params_m", "86600000"),
        ("activations_m", "29000000"),
        ("memory_fixed_mib", "0.87"),
        ("memory_per_sample_mib", "116000000"),
        ("layers", "0"),
        ("kind", "vision"),
        ("load", "heavy"),
    ],
)
def test_wrong_network(tmp_path: Path, field: str, value: str) -> None:
    """The same of a network."""
    path = write_rows(tmp_path / "models.csv", "workload", changed(NETWORK, field, value))
    with pytest.raises(InputError, match=f"{field} of vit_b16"):
        register_models(path)


def test_at_any_time(tmp_path: Path) -> None:
    """Rows registered after an estimate are estimated like rows registered before it."""
    assert catalogue.kind("vit_b16") == "cnn"  # the kind of a name that is not known
    hs.estimate("T4", "resnet50:8")
    register_gpus(write_rows(tmp_path / "gpus.csv", "gpu", CARD))
    register_models(write_rows(tmp_path / "models.csv", "workload", NETWORK))
    late = hs.estimate("N4", "vit_b16:8@50")
    assert catalogue.kind("vit_b16") == "transformer"

    for clear in catalogue._DEPENDENT:
        clear()
    assert hs.estimate("N4", "vit_b16:8@50") == late
    assert hs.estimate("n4", "vit_b16:8@50") == late


def test_again(tmp_path: Path) -> None:
    """The same rows are accepted again, from any file; another value of a known name is refused and named."""
    path = write_rows(tmp_path / "gpus.csv", "gpu", CARD)
    for _ in range(2):
        register_gpus(path)
        known = catalogue.gpus()["N4"]
        hs.estimate("N4", "resnet50:8")
    register_gpus(write_rows(tmp_path / "copy.csv", "gpu", CARD))
    assert catalogue.gpus()["N4"] is known
    assert catalogue.registered_files() == [path]

    write_rows(path, "gpu", changed(CARD, "tdp_w", "90"))
    with pytest.raises(InputError, match="N4 with another tdp_w"):
        register_gpus(path)
    with pytest.raises(InputError, match="T4 with another "):
        register_gpus(write_rows(tmp_path / "own.csv", "gpu", CARD.replace("N4,", "T4,")))
    assert catalogue.gpus()["N4"] is known


@pytest.mark.filterwarnings("ignore::heshare.prediction.modelled_references.UnprofiledWarning")
def test_plan(tmp_path: Path) -> None:
    """A GPU registered after a run takes part in the next one."""
    hs.run(2, "1xT4", "sjf")
    register_gpus(write_rows(tmp_path / "gpus.csv", "gpu", CARD))
    assert set(hs.run(6, "1xT4,1xN4", "sjf").to_frame()["gpu"]) == {"T4-0", "N4-0"}


def test_no_attention(tmp_path: Path) -> None:
    """A state-space model moves its weights and its states, at any context; a window model no more than its window."""
    longer = changed(MAMBA, "context", "8192").replace("mamba,", "longer,")
    window = changed(MAMBA, "state_mib", "0").replace("mamba,", "window,")
    window += "window,window_layers,64,,stated,x\nwindow,window,512,,stated,x\n"
    register_models(write_rows(tmp_path / "models.csv", "workload", MAMBA + longer + window))
    mamba, same, near = (catalogue.shape(name) for name in ("mamba", "longer", "window"))
    assert mamba is not None
    assert same is not None
    assert near is not None
    assert mamba.moved_bytes(4, "fp16") == same.moved_bytes(4, "fp16") == 2 * 2770e6 + 4 * 2 * 21 * 2**20
    assert near.moved_bytes(4, "fp16") == 2 * 2770e6 + 4 * 2 * 80 * 64 * 64 * 512 * 2
    assert hs.estimate("A100", "mamba:4", precision="fp16").tasks[0].time_s > 2 * 2770e6 / 2.039e12


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        (changed(MAMBA, "state_mib", "0"), "full_layers"),
        (changed(MAMBA, "full_layers", "65"), "full_layers"),
        (changed(MAMBA, "full_layers", "-1"), "full_layers"),
        (MAMBA + "mamba,window_layers,64,,stated,x\n", "window"),
        (MAMBA + "mamba,window,512,,stated,x\n", "window"),
    ],
)
def test_wrong_layers(tmp_path: Path, rows: str, field: str) -> None:
    """Layers of a language model that cannot be are refused by the names of the field and of the model."""
    with pytest.raises(InputError, match="mamba") as caught:
        register_models(write_rows(tmp_path / "models.csv", "workload", rows))
    assert field in str(caught.value)
