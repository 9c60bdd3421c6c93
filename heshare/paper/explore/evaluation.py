"""What a plan promises by a predictor, and what a run of it on emulated GPUs gives."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from heshare.paper.explore.results import DrawableRun
from heshare.policies.plan_release import FixedPlanPolicy
from heshare.prediction.predictor import Predictor
from heshare.running.run import run
from heshare.scheduling.batch_model import BatchModel, plan_objectives
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.plan import Batch, Plan
from heshare.shared import display
from heshare.world.cluster import Cluster
from heshare.world.task import Task


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """A plan with the values that a predictor gives it, and its run.

    Attributes:
        plan: the plan, with predicted `energy_j` (active account) and `jct_s`.
        run: its run on emulated GPUs.
    """

    plan: Plan
    run: DrawableRun

    def __repr__(self) -> str:
        values = ((self.plan.energy_j, self.plan.jct_s), (self.run.energy_active_j, self.run.avg_jct_s))
        (promised, ran) = (f"{display.energy(energy_j)}, {display.number(jct_s)} s" for energy_j, jct_s in values)
        return f"Evaluation(predicted {promised}; run {ran})"

    def to_frame(self) -> pd.DataFrame:
        """Return the energy (active account, J), the average JCT (s), and what is run over what is predicted, %."""
        frame = pd.DataFrame(
            {
                "measure": ["energy_active_j", "avg_jct_s"],
                "predicted": [self.plan.energy_j, self.plan.jct_s],
                "run": [self.run.energy_active_j, self.run.avg_jct_s],
            }
        )
        return frame.assign(run_over_predicted_pct=100 * (frame["run"] / frame["predicted"] - 1))


def evaluation(
    queues: Sequence[Sequence[Batch]], tasks: Sequence[Task], cluster: Cluster, predictor: Predictor
) -> Evaluation:
    """Return the evaluation of the queues of a plan, whose tasks are all there at the start.

    Raises:
        PlanError: queues that no GPU could run, or that miss a task.
    """
    as_plan = Plan(cluster, tuple(tasks), tuple(map(tuple, queues)), float("nan"), float("nan"))
    world = make_instance(tasks, cluster, predictor)
    ((energy_j, jct_s),) = plan_objectives([as_plan], world, BatchModel(world, predictor)).tolist()
    plan = Plan(cluster, as_plan.tasks, as_plan.queues, energy_j, jct_s)
    done = run(tasks, cluster, FixedPlanPolicy(plan), predictor=predictor, rng=np.random.default_rng(0))
    return Evaluation(plan, DrawableRun.of(done))
