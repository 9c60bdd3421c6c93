"""The page `explore_fig06.html`: HeShare's plans for the first task set of Fig. 6."""

from pathlib import Path

from heshare.lab.plus.physics.physics_predictor import load_predictor
from heshare.lab.sweeps.random_streams import POLICY, Repetition
from heshare.paper.explore.results import Front
from heshare.paper.report.published_outputs import PublishedOutput
from heshare.scheduling.planner import plan
from heshare.shared.progress import bar
from heshare.world.cluster import Cluster

NAME = "explore_fig06.html"


def write(folder: Path, figure: PublishedOutput) -> str:
    """Write the page, unless one is there that is not older than the figure, and return its name."""
    about, target = figure.about["parameters"], folder / NAME
    if target.is_file() and target.stat().st_mtime >= (folder / f"{figure.name}.json").stat().st_mtime:
        return NAME
    streams, predictor, cluster = Repetition(0, about["seed"]), load_predictor(), Cluster.parse(about["cluster"])
    tasks = streams.task_set(about["tasks"], **{key: about[key] for key in ("batch_sizes",) if key in about})
    with bar("plans of Fig. 6", "generation", True) as update:
        front = plan(tasks, cluster, predictor, rng=streams.rng(POLICY), progress=update)
    Front.of(front, predictor).explore(target)
    return NAME
