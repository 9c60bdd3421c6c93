"""Compiles all that numba compiles and stores the trained forest, so that no later start waits for it.

Small task sets are planned, searched, bounded and run, which calls every compiled function with the types of arguments
that all sizes share.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from heshare.devices import crowding
from heshare.devices.task_sizes import draw
from heshare.lab.calibration.copies_fit import stretch_arrays
from heshare.lab.plus.costs import BatchCosts
from heshare.lab.plus.heshare_plus import optimise
from heshare.lab.plus.optimum.exact_front import front_of
from heshare.lab.plus.optimum.lower_bound import lower_bound, weights_along
from heshare.lab.plus.physics.physics_predictor import load_predictor
from heshare.lab.plus.search_settings import SearchSettings
from heshare.lab.systems.fikit.kernel_rules import Client, FikitRule, share
from heshare.lab.systems.fikit.kernel_trace import traces
from heshare.policies.registry import make
from heshare.running.run import run
from heshare.scheduling.objectives import make_instance
from heshare.scheduling.planner import plan
from heshare.scheduling.settings import DEFAULTS
from heshare.shared.compiling import compilation_told_by, compilations
from heshare.world.cluster import Cluster
from heshare.world.task import Task

_CLUSTER = "2xT4,1xV100,1xA100"
_TASKS = 12
_POLICIES = ("fikit", "heshare+-online:trade-off")


def compile_all(tell: Callable[[str], None] = lambda text: None) -> int:
    """Compile what is not compiled yet, and return how many functions that were.

    Two processes do it; one takes from disk what the other has compiled. `tell` is called with what they compile.
    """
    with ProcessPoolExecutor(len(_STEPS)) as pool:
        begun = [pool.submit(_compile, index) for index in range(len(_STEPS))]
        tell("; ".join(", ".join(steps) for steps in _STEPS))
        return sum(each.result() for each in begun)


def load_all() -> None:
    """Load all compiled code into this process; compile what is missing."""
    for index in range(len(_STEPS)):
        _compile(index)


def _compile(index: int) -> int:
    before = compilations.count
    with compilation_told_by(lambda text: None):
        for step in _STEPS[index].values():
            step()
    return compilations.count - before


def _plan() -> None:
    crowding.compiled_later.compile()
    rng = np.random.default_rng(0)
    plan(_tasks(), Cluster.parse(_CLUSTER), load_predictor(), rng=rng, settings=DEFAULTS)


def _search() -> None:
    tasks, gpus, predictor = _tasks(), Cluster.parse(_CLUSTER), load_predictor()
    optimise(tasks, gpus, predictor, rng=np.random.default_rng(0), effort=SearchSettings(rounds=3)).to_frame()


def _bound() -> None:
    gpus, predictor = Cluster.parse("1xT4,1xA100"), load_predictor()
    costs = BatchCosts(make_instance(_tasks(6), gpus, predictor), predictor)
    lower_bound(costs, weights_along(front_of(costs).objectives))


def _run() -> None:
    for policy in _POLICIES:
        rng = np.random.default_rng(0)
        run(_tasks(), Cluster.parse(_CLUSTER), make(policy), predictor=load_predictor(), rng=rng)


def _tasks(n: int = _TASKS) -> tuple[Task, ...]:
    return tuple(draw(n, rng=np.random.default_rng(0)))


def _share() -> None:
    trace = next(iter(traces().values()))
    share([Client(trace, requests=1), Client(trace, priority=1)], FikitRule())


_STEPS: tuple[dict[str, Callable[[], object]], ...] = (
    {"predictor and plan": _plan, "bounds": _bound, "policies": _run},
    {
        "kernels that share a GPU": _share,
        "calibration": lambda: stretch_arrays(1.0, *[np.ones((1, 2))] * 3),
        "improved search": _search,
    },
)
"""What each process calls, in this order."""
