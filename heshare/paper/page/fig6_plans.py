"""The page `explore_fig06.html`: HeShare's plans for the first task set of Fig. 6, and runs of the baselines."""

import json
from pathlib import Path

from heshare.lab.sweeps.random_streams import POLICY, TASKS, Repetition
from heshare.paper.explore.front_page import explore
from heshare.paper.harness import Setting
from heshare.policies import registry
from heshare.policies.plan_release import FixedPlanPolicy
from heshare.policies.policy import Policy
from heshare.running.run import run
from heshare.scheduling.planner import plan

NAME, FIGURE, HOME = "explore_fig06.html", "fig06_comparison", "index.html"
BASELINES = {"Random": "random", "Morak": "morak", "μ-Serve": "mu-serve"}


def write(folder: Path) -> str:
    """Write the page for the parameters of Fig. 6 in the folder, unless it exists and is not older than the figure.

    Returns:
        The page's name, empty if Fig. 6 does not exist.
    """
    figure, target = folder / f"{FIGURE}.json", folder / NAME
    if not figure.is_file():
        return ""
    if target.is_file() and target.stat().st_mtime >= figure.stat().st_mtime:
        return NAME

    parameters = json.loads(figure.read_text("utf-8"))["parameters"]
    batch_sizes = tuple(parameters["batch_sizes"])
    setting = Setting(cluster=parameters["cluster"], tasks=parameters["tasks"], batch_sizes=batch_sizes)
    streams = Repetition(0, parameters["seed"])
    tasks = setting.draw(rng=streams.rng(TASKS))
    predictor = setting.make_predictor()

    front = plan(tasks, setting.gpus, predictor, rng=streams.rng(POLICY))
    policies: dict[str, Policy] = {"Trade-off": FixedPlanPolicy(front.trade_off)}
    policies |= {title: registry.make(description) for title, description in BASELINES.items()}
    runs = {
        title: run(tasks, setting.gpus, policy, predictor=predictor, rng=streams.rng(POLICY))
        for title, policy in policies.items()
    }
    explore(front, target, predictor=predictor, runs=runs, home=HOME)
    return NAME
