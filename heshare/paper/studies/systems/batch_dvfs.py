"""BatchDVFS in the setting of its paper: one job at a time on one GPU, each under its own power cap.

The published code runs 30 jobs of 15,000 or 20,000 images under caps drawn between 80 and 246 W on a card of 250 W.
Here the networks are the convolutional ones of Table IV, and caps are the same shares of the card's power limit.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.study_runs import repeat
from heshare.policies.registry import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.world.catalogue import paper_models
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

IMAGES = (15_000, 20_000)
"""Numbers of images of a job, from the published code."""
CAPS = (80 / 250, 246 / 250)
"""Lowest and highest cap as a share of the board power limit, from the published code."""


def runs(systems: Mapping[str, str], gpu: str, *, jobs: int, seed: int, seeds: int) -> pd.DataFrame:
    """Run jobs under each system, one at a time.

    Args:
        systems: policies by title; `{cap}` is filled in.
        gpu: name of the GPU.
        jobs: jobs of a repetition: a network, a number of images and a cap each.
        seed: of all repetitions.
        seeds: number of repetitions.

    Returns:
        One row a repetition, job and system: repetition, job, title, network, images_per_s, j_per_image, above_pct
        (share of the time above the cap).
    """
    cluster = Cluster.parse(gpu)
    networks = sorted(name for name, model in paper_models().items() if model.load != "high")

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        rng = repetition.rng()
        for job in range(jobs):
            network = str(rng.choice(networks))
            images = int(rng.choice(IMAGES))
            cap = round(float(rng.uniform(*CAPS)), 3)

            for title, policy in systems.items():
                result = _run_job(cluster, network, images, policy.format(cap=cap))
                yield {"job": job, "title": title, "network": network, **_measures(result, images, cap)}

    return repeat(run_one, seed=seed, seeds=seeds).assign(provenance="emulated")


def _run_job(cluster: Cluster, network: str, images: int, policy: str) -> Run:
    task = Task(0, Workload(network, 1), float(images))
    return run([task], cluster, make(policy), predictor=DevicePredictor(), rng=np.random.default_rng(0))


def _measures(result: Run, images: int, cap: float) -> dict[str, float]:
    cap_w = cap * result.cluster.gpus[0].tdp_w
    above = [segment for segment in result.record.segments if segment.power_w > cap_w * (1 + 1e-9)]
    above_s = sum(segment.end_s - segment.start_s for segment in above)
    return {
        "images_per_s": images / result.makespan_s,
        "j_per_image": float(result.device_energy_j[0]) / images,
        "above_pct": 100.0 * above_s / result.makespan_s,
    }
