"""The study of BatchDVFS in the setting of its own paper: one job at a time on one GPU, each under its own power cap.

The published code runs 30 jobs of 15,000 or 20,000 images under caps drawn between 80 and 246 W on a card of 250 W.
Here the networks are the convolutional ones of Table IV, the card is one of ours, and caps are the same shares of its
limit.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from heshare.experiments.statistics import median_interval
from heshare.experiments.study_runs import Repetition, repeat
from heshare.plugins import make
from heshare.prediction.oracle import DevicePredictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.world.catalogue import models
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

IMAGES = (15_000, 20_000)
"""Numbers of images of a job, from the published code."""
CAPS = (80 / 250, 246 / 250)
"""Lowest and highest cap as a share of the board power limit, from the published code."""
RIVALS = {
    "BatchDVFS": "batch-dvfs",
    "Clock alone, batch of 1": "batch-dvfs:dvfs-only,fixed=1",
    "Clock alone, batch of 32": "batch-dvfs:dvfs-only,fixed=32",
    "Batch size alone": "batch-dvfs:batch-only",
    "Clipper": "batch-dvfs:clipper",
}
"""The compared systems, by title: a policy, and a parameter besides the cap."""


def networks() -> list[str]:
    """Return the convolutional networks of Table IV, sorted."""
    return sorted(name for name, model in models().items() if model.load != "high")


def run_systems(gpu: str, *, seed: int, seeds: int, jobs: int = 30) -> pd.DataFrame:
    """Run the same jobs under BatchDVFS and each system that it is compared with.

    Args:
        gpu: the card.
        seed: the seed of networks, numbers of images and caps.
        seeds: number of draws of all jobs.
        jobs: number of jobs of a draw.

    Returns:
        One row a job and policy: repetition, job, title, network, cap_w, images_per_s, j_per_image, above_pct (share
        of the time above the cap), longest_above_s.
    """
    cluster = Cluster.parse(gpu)

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        rng = repetition.rng()
        for job in range(jobs):
            network, images = str(rng.choice(networks())), int(rng.choice(IMAGES))
            cap = round(float(rng.uniform(*CAPS)), 3)
            for title in RIVALS:
                result = run_job(cluster, network, images, cap, RIVALS[title])
                yield {"job": job, "title": title, "network": network, **_measures(result, images, cap)}

    return repeat(run_one, seed=seed, seeds=seeds)


def run_job(cluster: Cluster, network: str, images: int, cap: float, system: str) -> Run:
    """Run one job under a cap.

    Args:
        cluster: one GPU.
        network: a model of Table IV.
        images: number of images.
        cap: the power cap, as a share of the board power limit.
        system: a value of `RIVALS`.
    """
    name, _, parameter = system.partition(",")
    parameters = ",".join(filter(None, (f"cap={cap}", parameter)))
    policy = make(f"{name}({parameters})")
    task = Task(0, Workload(network, 1), float(images))
    return run([task], cluster, policy, predictor=DevicePredictor(), rng=np.random.default_rng(0))


def _measures(result: Run, images: int, cap: float) -> dict[str, float]:
    cap_w = cap * result.cluster.gpus[0].tdp_w
    segments = result.record.segments
    lengths_s = [(segment.end_s - segment.start_s, segment.power_w > cap_w * (1 + 1e-9)) for segment in segments]
    longest_s = stretch_s = 0.0
    for length_s, above in lengths_s:
        stretch_s = stretch_s + length_s if above else 0.0
        longest_s = max(longest_s, stretch_s)
    above_s = sum(length_s for length_s, above in lengths_s if above)
    return {
        "cap_w": cap_w,
        "images_per_s": images / result.makespan_s,
        "j_per_image": float(result.device_energy_j[0]) / images,
        "above_pct": 100 * above_s / result.makespan_s,
        "longest_above_s": longest_s,
    }


def gains(runs: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return BatchDVFS's throughput over that of each other system, the geometric mean over jobs of each draw.

    Args:
        runs: as from `run_systems`.
        rng: draws the bootstrap's samples, over draws.

    Returns:
        One row a title: ratio, low, high, n, least and most (over single jobs), above_pct (share of time above the cap,
        the mean over that title's jobs), j_per_image (median), provenance.
    """
    wide = runs.pivot_table(index=["repetition", "job"], columns="title", values="images_per_s")
    rows = []
    for title in dict.fromkeys(runs["title"]):
        ratio = wide["BatchDVFS"] / wide[title]
        means = np.exp(np.log(ratio).groupby(level="repetition").mean())
        own = runs[runs["title"] == title]
        row = {
            "title": title,
            **median_interval(means, rng).columns("ratio"),
            "least": ratio.min(),
            "most": ratio.max(),
        }
        rows.append({**row, "above_pct": own["above_pct"].mean(), "j_per_image": own["j_per_image"].median()})
    return pd.DataFrame(rows).assign(provenance="emulated")


def job_steps(result: Run, cap: float) -> pd.DataFrame:
    """Return one job step by step: time_s, inference batch size, clock (MHz), power and cap (W)."""
    cap_w = cap * result.cluster.gpus[0].tdp_w
    sizes = {interval.start_s: interval.batch_size for interval in result.record.intervals}
    rows = []
    for segment in result.record.segments:
        began_s = max(start_s for start_s in sizes if start_s <= segment.start_s)
        rows.append((segment.start_s, sizes[began_s], segment.sm_mhz, segment.power_w, cap_w))
    # The last values hold until the end.
    rows.append((result.makespan_s, *rows[-1][1:]))
    return pd.DataFrame(rows, columns=["time_s", "batch_size", "sm_mhz", "power_w", "cap_w"])
