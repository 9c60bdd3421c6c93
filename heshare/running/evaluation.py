"""What a plan promises by a predictor, and what a run of it on emulated GPUs gives."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from heshare.policies.plan_release import FixedPlanPolicy
from heshare.prediction.predictor import Predictor
from heshare.running.result import Run
from heshare.running.run import run
from heshare.scheduling.batch_model import BatchModel, plan_objectives
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.plan import Batch, Plan
from heshare.shared import display
from heshare.shared.errors import require
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
    run: Run

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
        InputError: something else than batches.
        PlanError: queues that no GPU could run, or that miss a task.
    """
    good = isinstance(queues, list | tuple) and all(isinstance(queue, list | tuple) for queue in queues)
    good = good and len(queues) > 0 and all(isinstance(batch, Batch) for queue in queues for batch in queue)
    action = "Import Batch from heshare.scheduling.plan."
    require("plan", display.found(queues), good, "a Plan, or a list of Batch(...) for each GPU", action)

    unknown = Plan(cluster, tuple(tasks), tuple(map(tuple, queues)), energy_j=float("nan"), jct_s=float("nan"))
    instance = make_instance(tasks, cluster, predictor)
    ((energy_j, jct_s),) = plan_objectives([unknown], instance, BatchModel(instance, predictor)).tolist()
    plan = replace(unknown, energy_j=energy_j, jct_s=jct_s)

    done = run(tasks, cluster, FixedPlanPolicy(plan), predictor=predictor, rng=np.random.default_rng(0))
    return Evaluation(plan, done)
