"""BatchDVFS's home setting: one job at a time on one GPU, each under a power cap of its own.

The published code runs 30 jobs of 15,000 or 20,000 images under caps drawn between 80 and 246 W on a card of 250 W.
Here the networks are the convolutional ones of Table IV and the card is one of ours; caps are the same shares of its
limit.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from heshare.policies.registry import make
from heshare.prediction.truth import DevicePredictor
from heshare.reporting.statistics import median_interval
from heshare.running.result import Run
from heshare.running.run import run
from heshare.world.catalogue import models
from heshare.world.cluster import Cluster
from heshare.world.task import Task
from heshare.world.workload import Workload

IMAGES = (15_000, 20_000)
CAPS = (80 / 250, 246 / 250)
RIVALS = {
    "BatchDVFS": "batch-dvfs",
    "Clock alone, batch of 1": "batch-dvfs:dvfs-only,fixed=1",
    "Clock alone, batch of 32": "batch-dvfs:dvfs-only,fixed=32",
    "Batch size alone": "batch-dvfs:batch-only",
    "Clipper": "batch-dvfs:clipper",
}
"""What is compared, by title: a policy, and a parameter besides the cap."""


def networks() -> list[str]:
    """The convolutional networks of Table IV, sorted."""
    return sorted(name for name, each in models().items() if each.load != "high")


def home(gpu: str, *, seed: int, seeds: int, jobs: int = 30) -> pd.DataFrame:
    """Run the jobs of the home setting under BatchDVFS and what it is set against.

    Args:
        gpu: the card.
        seed: of networks, numbers of images and caps.
        seeds: how many draws of all jobs.
        jobs: how many jobs a draw.

    Returns:
        One row a job and policy: repetition, job, title, network, cap_w, images_per_s, j_per_image, above_pct (share
        of the time above the cap), longest_above_s.
    """
    cluster = Cluster.parse(gpu)
    rows = []
    for repetition in range(seeds):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(repetition,)))
        for job in range(jobs):
            network, images = str(rng.choice(networks())), int(rng.choice(IMAGES))
            cap = round(float(rng.uniform(*CAPS)), 3)
            for title in RIVALS:
                done = one(cluster, network, images, cap, RIVALS[title])
                rows.append((repetition, job, title, network, *_measures(done, images, cap)))
    columns = ["cap_w", "images_per_s", "j_per_image", "above_pct", "longest_above_s"]
    return pd.DataFrame(rows, columns=["repetition", "job", "title", "network", *columns])


def one(cluster: Cluster, network: str, images: int, cap: float, rival: str) -> Run:
    """One job: so many images through a network under a cap, as a share of the board power limit."""
    name, _, parameter = rival.partition(",")
    inside = ",".join(filter(None, (f"cap={cap}", parameter)))
    policy = make(f"{name}({inside})")
    task = Task(0, Workload(network, 1), float(images))
    return run([task], cluster, policy, predictor=DevicePredictor(), rng=np.random.default_rng(0))


def _measures(done: Run, images: int, cap: float) -> tuple[float, ...]:
    cap_w = cap * done.cluster.gpus[0].tdp_w
    parts = [(each.end_s - each.start_s, each.power_w > cap_w * (1 + 1e-9)) for each in done.record.segments]
    longest_s = now_s = 0.0
    for length_s, above in parts:
        now_s = now_s + length_s if above else 0.0
        longest_s = max(longest_s, now_s)
    above_s = sum(length_s for length_s, above in parts if above)
    seconds = done.makespan_s
    return (cap_w, images / seconds, float(done.device_energy_j[0]) / images, 100 * above_s / seconds, longest_s)


def gains(runs: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """BatchDVFS's throughput over each of the others, the geometric mean over jobs of each draw.

    Args:
        runs: as from `home`.
        rng: of the bootstrap over draws.

    Returns:
        One row a title: ratio, low, high, n, least and most (over single jobs), above_pct (share of time above the cap,
        the mean over that title's jobs), j_per_image (median), provenance.
    """
    wide = runs.pivot_table(index=["repetition", "job"], columns="title", values="images_per_s")
    rows = []
    for title in dict.fromkeys(runs["title"]):
        ratio = wide["BatchDVFS"] / wide[title]
        found = median_interval(np.exp(np.log(ratio).groupby(level="repetition").mean()), rng)
        own = runs[runs["title"] == title]
        above, joules = own["above_pct"].mean(), own["j_per_image"].median()
        rows.append((title, found.value, found.low, found.high, found.n, ratio.min(), ratio.max(), above, joules))
    columns = ["title", "ratio", "low", "high", "n", "least", "most", "above_pct", "j_per_image"]
    return pd.DataFrame(rows, columns=columns).assign(provenance="emulated")


def trace(done: Run, cap: float) -> pd.DataFrame:
    """One job step by step: time_s, inference batch size, clock (MHz), power and cap (W)."""
    sizes = {each.start_s: each.batch_size for each in done.record.intervals}
    rows = []
    for each in done.record.segments:
        began_s = max(start_s for start_s in sizes if start_s <= each.start_s)
        rows.append((each.start_s, sizes[began_s], each.sm_mhz, each.power_w, cap * done.cluster.gpus[0].tdp_w))
    rows.append((done.makespan_s, *rows[-1][1:]))
    return pd.DataFrame(rows, columns=["time_s", "batch_size", "sm_mhz", "power_w", "cap_w"])
