"""Morak in the setting of its paper: a saturated server under a power cap and a latency limit.

Card, network, cap and limit of Morak's paper are not public. They are those of a third party that uses Morak as a
baseline (wuooo339/PctoDL@3074bf90: `run_benchmark.py` and `src/config/*_morak.json`): one network on an
A100, two instances, a cap and a limit for each network, inference batch size 96 and the middle clock to begin with.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from heshare.devices.emulated_device import EmulatedDevice
from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.study_runs import repeat
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.world.catalogue import gpu
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

GPU = "A100"
LIMITS_S: Mapping[str, float] = {"densenet201": 0.200, "mobilenetv2": 0.120, "resnet50": 0.100, "vgg19": 0.180}
"""Latency limit of an iteration of each network, s."""
CAPS_W: Mapping[str, tuple[float, float]] = {
    "densenet201": (200, 280),
    "mobilenetv2": (100, 120),
    "resnet50": (150, 180),
    "vgg19": (130, 180),
}
"""The lower and the higher cap of each network (one for each of two data sets), W."""
LARGE = 64
"""Inference batch size at which larger ones serve little more; the time of all images is stated at this size."""
HELD_TO = 1.02
"""Up to this share of the cap Morak's law holds."""

_PREDICTOR = DevicePredictor()


@dataclass(frozen=True, slots=True)
class Server:
    """How a system serves a network.

    Attributes:
        policy: its description; `{cap}` (a share of the board power limit) and `{limit}` (over the time alone) are
            filled in.
        instances: number of instances of the network.
        batch_size: inference batch size at the beginning.
        limited: whether the card's own power limit is the cap.
    """

    policy: str
    instances: int
    batch_size: int
    limited: bool = False


def runs(servers: Mapping[str, Server], *, seconds: float, seed: int, seeds: int) -> pd.DataFrame:
    """Run servers on every network, under a cap drawn between its two published ones in each repetition.

    Args:
        servers: the systems by title.
        seconds: time of all images alone at the top clock, s; the second half of a run is measured.
        seed: of all repetitions.
        seeds: number of repetitions.

    Returns:
        One row a repetition, network and system: repetition, network, cap_w, title, images_per_s, and shares of the
        time, %: above_pct (above the cap), beyond_pct (above `HELD_TO` of it), late_pct (beyond the latency limit).
    """

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        rng = repetition.rng()
        for network, caps_w in CAPS_W.items():
            share = rng.uniform(*caps_w) / gpu(GPU).tdp_w
            cap_w = share * gpu(GPU).tdp_w
            for title, server in servers.items():
                measures = _measures(_run(server, network, share, seconds), cap_w, LIMITS_S[network])
                yield {"network": network, "cap_w": cap_w, "title": title, **measures}

    return repeat(run_one, seed=seed, seeds=seeds).assign(provenance="emulated")


def _run(server: Server, network: str, share: float, seconds: float) -> Run:
    card = gpu(GPU)
    workload = Workload(network, server.batch_size)
    images = seconds * LARGE / _alone_s(Workload(network, LARGE))
    iterations = images / server.instances / server.batch_size

    limit = LIMITS_S[network] / _alone_s(workload)
    policy = make(server.policy.format(cap=round(share, 4), limit=round(limit, 6)))
    tasks = [Task(index, workload, iterations) for index in range(server.instances)]
    device = EmulatedDevice(card, power_cap_w=share * card.tdp_w if server.limited else None)
    rng = np.random.default_rng(0)
    return run(tasks, Cluster((card,)), policy, predictor=_PREDICTOR, rng=rng, devices=[device])


def _alone_s(workload: Workload) -> float:
    return float(_PREDICTOR.solo([workload], gpu(GPU), gpu(GPU).max_mhz).time_s[0, 0])


def _measures(result: Run, cap_w: float, limit_s: float) -> dict[str, float]:
    half_s = result.makespan_s / 2
    images = above_s = beyond_s = late_s = 0.0

    for part in result.record.segments:
        length_s = part.end_s - max(part.start_s, half_s)
        if length_s <= 0 or not part.residents:
            continue
        for task, _, time_s in part.residents:
            images += length_s * _batch_size(result, task, part.start_s) / time_s

        above_s += length_s * (part.power_w > cap_w * (1 + 1e-4))
        beyond_s += length_s * (part.power_w > HELD_TO * cap_w * (1 + 1e-4))
        late_s += length_s * any(time_s > limit_s * (1 + 1e-4) for *_, time_s in part.residents)

    shares_s = {"above_pct": above_s, "beyond_pct": beyond_s, "late_pct": late_s}
    return {"images_per_s": images / half_s, **{name: 100.0 * time_s / half_s for name, time_s in shares_s.items()}}


def _batch_size(result: Run, task: int, at_s: float) -> int:
    return next(
        each.batch_size
        for each in result.record.intervals
        if each.task == task and each.start_s <= at_s + 1e-9 and each.end_s > at_s + 1e-9
    )
