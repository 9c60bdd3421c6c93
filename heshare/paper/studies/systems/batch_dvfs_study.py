"""The study of BatchDVFS in the setting of its own paper: one job at a time on one GPU, each under its own power cap.

The published code runs 30 jobs of 15,000 or 20,000 images under caps drawn between 80 and 246 W on a card of 250 W.
Here the networks are the convolutional ones of Table IV, the card is one of ours, and caps are the same shares of its
limit.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from heshare.lab.sweeps.random_streams import Repetition
from heshare.lab.sweeps.statistics import median_interval
from heshare.lab.sweeps.study_runs import repeat
from heshare.paper.figures.rows import interval_rows, value_line
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
SYSTEMS: Mapping[str, str] = {
    "BatchDVFS": "batch-dvfs",
    "Clock alone, batch of 1": "batch-dvfs:dvfs-only,fixed=1",
    "Clock alone, batch of 32": "batch-dvfs:dvfs-only,fixed=32",
    "Batch size alone": "batch-dvfs:batch-only",
    "Clipper": "batch-dvfs:clipper",
}
"""The compared systems, by title: a policy, and a parameter besides the cap."""


def networks() -> list[str]:
    return sorted(name for name, model in paper_models().items() if model.load != "high")


def run_systems(gpu: str, *, seed: int, seeds: int, jobs: int = 30) -> pd.DataFrame:
    """Run the same jobs under BatchDVFS and each system that it is compared with."""
    cluster = Cluster.parse(gpu)

    def run_one(repetition: Repetition) -> Iterator[dict[str, object]]:
        rng = repetition.rng()
        for job in range(jobs):
            network, images = str(rng.choice(networks())), int(rng.choice(IMAGES))
            cap = round(float(rng.uniform(*CAPS)), 3)
            for title, system in SYSTEMS.items():
                result = run_job(cluster, network, images, cap, system)
                yield {"job": job, "title": title, "network": network, **_measures(result, images, cap)}

    return repeat(run_one, seed=seed, seeds=seeds)


def run_job(cluster: Cluster, network: str, images: int, cap: float, system: str) -> Run:
    name, _, parameter = system.partition(",")
    parameters = ",".join(filter(None, (f"cap={cap}", parameter)))
    policy = make(f"{name}({parameters})")
    task = Task(0, Workload(network, 1), float(images))
    return run([task], cluster, policy, predictor=DevicePredictor(), rng=np.random.default_rng(0))


def _measures(result: Run, images: int, cap: float) -> dict[str, float]:
    cap_w = cap * result.cluster.gpus[0].tdp_w
    above = [segment for segment in result.record.segments if segment.power_w > cap_w * (1 + 1e-9)]
    above_s = sum(segment.end_s - segment.start_s for segment in above)
    return {
        "cap_w": cap_w,
        "images_per_s": images / result.makespan_s,
        "j_per_image": float(result.device_energy_j[0]) / images,
        "above_pct": 100 * above_s / result.makespan_s,
    }


def gains(runs: pd.DataFrame) -> pd.DataFrame:
    """Return BatchDVFS's throughput over that of each other system, the geometric mean over jobs of each draw."""
    wide = runs.pivot_table(index=["repetition", "job"], columns="title", values="images_per_s")
    rows = []
    for title, own in runs.groupby("title", sort=False):
        ratio: Any = wide["BatchDVFS"] / wide[title]
        means = np.exp(np.log(ratio).groupby(level="repetition").mean())
        rows.append(
            {
                "title": title,
                **median_interval(means).columns("ratio"),
                "least": ratio.min(),
                "most": ratio.max(),
                "above_pct": own["above_pct"].mean(),
                "j_per_image": own["j_per_image"].median(),
            }
        )
    return pd.DataFrame(rows).assign(provenance="emulated")


def panels(axes: Sequence[Axes], gains: pd.DataFrame) -> None:
    """Draw the throughput of each system over BatchDVFS's, and its time above the cap, a row for each system."""
    shown = gains.assign(over=1 / gains["ratio"], least=1 / gains["high"], most=1 / gains["low"])
    interval_rows(axes[0], shown, row="title", value="over", low="least", high="most")
    value_line(axes[0], 1.0, line="-")
    axes[0].set(xlabel="Throughput over BatchDVFS's", xlim=(0, None))
    interval_rows(axes[1], shown, row="title", value="above_pct", low="above_pct", high="above_pct", names=False)
    axes[1].set(xlabel="Time above the power cap (%)", xlim=(-1, None))
