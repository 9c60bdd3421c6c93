"""`python -m heshare.lab.compile_all`: compile what numba compiles and store the trained forest, ahead of their use.

Small task sets are planned, searched, bounded and run, which calls every compiled function with the types of arguments
that all sizes share. The paper's part is what its policies, searches and predictor need; HeShare+, the bound and other
systems are the rest, whose modules only its steps import. Both are kept beside the sources of a clone, or in
`~/.cache/heshare`; what is there already is not made again.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter

import numpy as np

from heshare.devices import crowding
from heshare.devices.task_sizes import draw
from heshare.policies.registry import make
from heshare.prediction.forest import load_forest_predictor
from heshare.prediction.oracle import DevicePredictor
from heshare.running.run import run
from heshare.scheduling.configuration import configure
from heshare.scheduling.genetic import Schemes, search
from heshare.scheduling.objectives import evaluate_schemes, make_instance
from heshare.scheduling.operators import random_schemes
from heshare.scheduling.settings import DEFAULTS
from heshare.shared.compiling import compilation_told_by, compilations
from heshare.shared.errors import HeShareError
from heshare.shared.extras import require_extra
from heshare.world.cluster import Cluster
from heshare.world.task import Task

Steps = Mapping[str, Callable[[], object]]

COMMAND = "python -m heshare.lab.compile_all"

_CLUSTER = "2xT4,1xV100,1xA100"
_TASKS, _SCHEMES = 12, 100


def compile_all(tell: Callable[[str], None] = lambda text: None, *, paper: bool = False) -> int:
    """Compile what is not compiled yet, and return how many functions that were.

    Two processes do it; one takes from disk what the other has compiled. `tell` is called with what they compile. With
    `paper` only what the paper's policies and predictor need.
    """
    processes = range(len(_PAPER))
    with ProcessPoolExecutor(len(processes)) as pool:
        begun = [pool.submit(_compile, process, paper) for process in processes]
        tell("; ".join(", ".join(_steps(process, paper)) for process in processes))
        return sum(each.result() for each in begun)


def load_all(*, paper: bool = False) -> None:
    """Load all compiled code into this process, or that of the paper's part; compile what is missing."""
    for process in range(len(_PAPER)):
        _compile(process, paper)


def _compile(process: int, paper: bool) -> int:
    before = compilations.count
    with compilation_told_by(lambda text: None):
        for step in _steps(process, paper).values():
            step()
    return compilations.count - before


def _steps(process: int, paper: bool) -> Steps:
    return _PAPER[process] if paper else {**_PAPER[process], **_OTHERS[process]}


def _tasks(n: int = _TASKS) -> tuple[Task, ...]:
    return tuple(draw(n, rng=np.random.default_rng(0)))


def _run(*policies: str) -> None:
    for policy in policies:
        rng = np.random.default_rng(0)
        run(_tasks(), Cluster.parse(_CLUSTER), make(policy), predictor=load_forest_predictor(), rng=rng)


def _stage_1() -> None:
    # The device model predicts, so that this process does not wait for the forest of the other.
    instance = make_instance(_tasks(), Cluster.parse(_CLUSTER), DevicePredictor())
    search(instance, DEFAULTS, np.random.default_rng(0))


def _stage_2_and_runs() -> None:
    # Random schemes, since the other process compiles stage 1; so many that tables of predictions grow.
    crowding.compiled_later.compile()
    predictor, rng = load_forest_predictor(), np.random.default_rng(0)
    instance = make_instance(_tasks(), Cluster.parse(_CLUSTER), predictor)
    gpus = random_schemes(instance.fits, _SCHEMES, rng)
    configure(Schemes(gpus, evaluate_schemes(gpus, instance), 1), instance, predictor)
    _run("random:all-at-once")


def _bound() -> None:
    from heshare.lab.plus.batch_table import BatchTable
    from heshare.lab.plus.exact_front import front_of
    from heshare.lab.plus.lower_bound import lower_bound, weights_along

    gpus, predictor = Cluster.parse("1xT4,1xA100"), load_forest_predictor()
    table = BatchTable(make_instance(_tasks(6), gpus, predictor), predictor)
    lower_bound(table, weights_along(front_of(table).objectives))


def _kernels() -> None:
    from heshare.lab.systems.fikit.kernel_rules import Client, FikitRule, share
    from heshare.lab.systems.fikit.kernel_trace import traces

    trace = next(iter(traces().values()))
    share([Client(trace, requests=1), Client(trace, priority=1)], FikitRule())
    _run("fikit")


def _calibration() -> None:
    from heshare.lab.calibration.copies_fit import stretch_arrays

    stretch_arrays(1.0, *[np.ones((1, 2))] * 3)


def _improved_search() -> None:
    from heshare.lab.plus.heshare_plus import SearchSettings, optimise

    effort, rng = SearchSettings(rounds=3), np.random.default_rng(0)
    optimise(_tasks(), Cluster.parse(_CLUSTER), load_forest_predictor(), rng=rng, effort=effort).to_frame()
    _run("heshare+-online:trade-off")


_PAPER: tuple[Steps, ...] = (
    {"search of schemes": _stage_1},
    {"predictor, batches and runs": _stage_2_and_runs},
)
"""What each process calls first, in this order."""
_OTHERS: tuple[Steps, ...] = (
    {"bounds": _bound, "kernels that share a GPU": _kernels, "calibration": _calibration},
    {"improved search": _improved_search},
)
"""What each process calls then, unless only the paper's part is wanted."""


def main(arguments: Sequence[str]) -> int:
    """Compile and train for this machine; return the exit code."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Compile and train for this machine now, not later.")
    parser.add_argument("--paper", action="store_true", help="only what the paper's policies and predictor need")
    options = parser.parse_args(arguments)
    began_s = perf_counter()
    try:
        require_extra("fast", COMMAND)
        count = compile_all(_tell, paper=options.paper)
    except HeShareError as error:
        sys.stderr.write(f"heshare: {error}\n")
        return error.exit_code
    sys.stdout.write(f"{count} functions compiled in {perf_counter() - began_s:.0f} s\n")
    return 0


def _tell(steps: str) -> None:
    sys.stderr.write(f"heshare: compiling {steps}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
