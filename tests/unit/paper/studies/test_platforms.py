"""Platforms differ from the calibrated one in what they name, for devices and predictor alike."""

from __future__ import annotations

import pytest

from heshare.devices.constants import default
from heshare.devices.device_model import co_run
from heshare.paper.claims.paper_claims import paper_claims
from heshare.paper.studies import platforms
from heshare.paper.studies.platforms import HIGH, LOW, PLATFORMS, power_range
from heshare.world import catalogue
from heshare.world.catalogue import PAPER_GPUS as GPUS
from heshare.world.cluster import Cluster
from heshare.world.workload import Resident, Workload


@pytest.mark.parametrize("platform", sorted(PLATFORMS))
def test_changed_gpus(platform: str) -> None:
    """A platform changes the GPUs that it names, and no other."""
    known, other = default(), platforms.constants(platform)
    # Together they ask for more than all SMs, so that taking turns matters, too.
    pair = tuple(Resident(Workload(model, 8), 90) for model in ("gpt2", "resnet50"))
    for name in GPUS:
        card = catalogue.gpu(name)
        low_mhz = card.clocks_mhz[len(card.clocks_mhz) // 2]
        usual, here = (co_run(card, pair, low_mhz, constants=each) for each in (known, other))
        assert (usual != here) == (name in PLATFORMS[platform].gpus)


@pytest.mark.parametrize(
    ("platform", "gpu", "name", "end"),
    [
        ("dynamic power, low", "A100", "dynamic_w", LOW),
        ("lowest voltage, high", "T4", "v_min", HIGH),
        ("T4's power, low", "T4", "idle_w", LOW),
    ],
)
def test_end_of_range(platform: str, gpu: str, name: str, end: int) -> None:
    """A platform at an end has the end of the range, which encloses the calibrated value."""
    low, high = power_range(gpu, name)
    assert low < getattr(default().power[gpu], name) < high
    assert getattr(platforms.constants(platform).power[gpu], name) == (low, high)[end]


def test_t4_of_fig_2() -> None:
    """The T4 of Fig. 2 has the paper's ratio."""
    alone = (Resident(Workload("resnet50", 8)),)
    known = platforms.constants(platforms.T4_OF_FIG_2)
    t4, a100 = (co_run(catalogue.gpu(name), alone, constants=known).tasks[0].time_s for name in ("T4", "A100"))
    assert t4 / a100 == pytest.approx(paper_claims()["M2", ""].value)


@pytest.mark.slow
def test_devices_and_predictor() -> None:
    """Devices and predictor have the constants of the same platform."""
    platform = "idle power, high"
    (device,) = platforms.devices(platform, Cluster.parse("1xA100"))
    known = platforms.constants(platform)
    assert device.read().power_w == known.power["A100"].parked_w == power_range("A100", "parked_w")[HIGH]

    card, light = catalogue.gpu("A100"), Workload("mobilenet", 1)
    true_w, usual_w = (co_run(card, (Resident(light),), constants=each).power_w for each in (known, default()))
    assert platforms.predictor(platform).solo([light], card).power_w[0] == pytest.approx(true_w, rel=0.02)
    assert true_w > 1.08 * usual_w
