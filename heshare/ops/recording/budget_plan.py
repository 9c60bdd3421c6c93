"""The order of measurements under a time budget: the most informative setups first, then ever more, without end.

The settings of the paper's Figs. 3 and 4 are among the first, so that every recording can draw these figures.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from heshare.profiles import design
from heshare.profiles.recorder import Step
from heshare.profiles.visit import MeasurementProtocol, Setup
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

PAIRS = (
    ("mobilenet", "resnet18"),
    ("resnet50", "mobilenetv2"),
    ("resnet50", "vgg19"),
    ("resnet152", "densenet201"),
    ("bert_large", "resnet50"),
    ("bert_large", "gpt2"),
)
"""Fig. 4: pairs of workloads that share a GPU, each at 100 %."""
PAIR_SIZE = 8
"""Fig. 4: their inference batch size (not stated in the paper)."""
CLOCK_MODEL, CLOCK_SIZES = "resnet152", (16, 32)
"""Fig. 3: the workload whose time is shown against the clock, and its inference batch sizes."""
CLOCK_POINTS = 6
"""Fig. 3: clocks that a recording measures, spread evenly over the GPU's grid."""
FIRST_SIZE = 8
"""The inference batch size that is measured first; tasks mostly use 4 and 8."""
SECOND_SIZE = 4
"""The next one. Chains use it only after every workload was measured alone at it: task features are of one size."""
CHAIN_TASKS = 7
"""Tasks of the largest set of a chain; its subsets follow without a new start, which takes a real task seconds."""
CHAINS = 20
"""Chains between two rounds of tasks alone."""
START_S = 5.0
"""Time to stop the tasks of a real GPU and start others, s: an assumption, a journal (`took_s`) has the real times."""


@dataclass(frozen=True, slots=True)
class PlannedVisit:
    """One visit of a forecast recording.

    All times are s, `begin_s` from the start of the recording; `start_s` is for starting and stopping tasks, part of
    `took_s`. `points` are rows of the profile that are new with it.
    """

    what: str
    begin_s: float
    start_s: float
    took_s: float
    points: int


def plan(
    gpu: Gpu, *, rng: np.random.Generator, clocks: bool = False, more_models: Iterable[str] = ()
) -> Iterator[Step]:
    """Yield visits in the order of their information, without end; take as many as there is time for.

    1. Every workload alone at 100 %: Table II's task features.
    2. Chains: seven workloads together, then six of them, and so on down to one alone under its MPS percentage, each
       task measured each time; among them the settings of the paper's Figs. 3 and 4.
    3. Every workload alone at half of the GPU.
    4. The first settings again, which shows how well they repeat.

    Then rounds of the same with other inference batch sizes, MPS percentages and workloads, each level far from those
    before. A setup that comes again is a further visit to it. With `clocks` every other round after the first runs
    below the top clock; `more_models` are recorded beside those of Table IV.
    """
    visits = Counter[Setup]()
    for setup in _rounds(gpu, design.model_names(more_models), rng, clocks):
        visits[setup] += 1
        yield setup, visits[setup]


def forecast(
    steps: Iterable[Step], protocol: MeasurementProtocol, budget_s: float | None, *, start_s: float
) -> list[PlannedVisit]:
    """Return the visits that fit into a budget, s, and their points, without measuring anything; None takes all.

    A set of tasks takes `start_s` to start, unless its tasks run already: the chains make a point cheap, since seven
    tasks are started once, and measured in seven sets, which are 28 points.
    """
    running, known, planned = Counter[Resident](), set[str](), list[PlannedVisit]()
    now_s = protocol.repeats * protocol.window_s
    for setup, _ in steps:
        wanted = Counter(setup.residents)
        starting_s = 0.0 if wanted <= running else start_s
        took_s = starting_s + protocol.visit_s
        if budget_s is not None and now_s + took_s > budget_s:
            break
        new = set(map(str, setup.points())) - known
        planned.append(PlannedVisit(str(setup), now_s, starting_s, took_s, len(new)))
        running, known, now_s = wanted, known | new, now_s + took_s
    return planned


def figure_setups(gpu: Gpu, *, clocks: bool) -> list[Setup]:
    """Return the setups of Figs. 3 and 4 beside every workload alone; without `clocks`, Fig. 3's at the top clock."""
    grid = gpu.clocks_mhz if clocks else gpu.clocks_mhz[-1:]
    last = len(grid) - 1
    clocks_mhz = sorted({grid[round(last * at / (CLOCK_POINTS - 1))] for at in range(CLOCK_POINTS)}, reverse=True)
    alone = [Setup((Resident(Workload(CLOCK_MODEL, size), 100),), mhz) for size in CLOCK_SIZES for mhz in clocks_mhz]
    pairs = [Setup(tuple(Resident(Workload(name, PAIR_SIZE), 100) for name in pair), gpu.max_mhz) for pair in PAIRS]
    return _fitting(gpu, [*pairs, *alone])


def bit_reversal_order(levels: int) -> list[int]:
    """Return 0 .. levels-1 in van der Corput's order: the middle, the quarters, the eighths, ..., and 0 at the end.

    Any first few of them lie far apart.

    >>> bit_reversal_order(8)
    [4, 2, 6, 1, 5, 3, 7, 0]
    """
    bits = max(1, (levels - 1).bit_length())
    reversed_bits = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1, 2**bits))
    return [*(level for level in reversed_bits if level < levels), 0][:levels]


def _rounds(gpu: Gpu, names: Sequence[str], rng: np.random.Generator, clocks: bool) -> Iterator[Setup]:
    spread_pcts = [design.MPS_PCTS[level] for level in bit_reversal_order(len(design.MPS_PCTS))]
    pcts = [50, 20, *(pct for pct in spread_pcts if pct not in (20, 50, 100))]
    sizes = [FIRST_SIZE, *(size for size in (SECOND_SIZE, 16, 2, 32, 1) if size in design.BATCH_SIZES)]
    clocks_mhz = [gpu.clocks_mhz[level] for level in bit_reversal_order(len(gpu.clocks_mhz))]
    for number in count():
        sm_mhz = clocks_mhz[number // 2 % len(clocks_mhz)] if clocks and number % 2 else gpu.max_mhz
        size, chain_sizes = sizes[number % len(sizes)], (SECOND_SIZE, FIRST_SIZE)
        yield from _alone(gpu, names, size, 100, gpu.max_mhz, rng)
        for chain in range(CHAINS):
            if number == 0 and chain == CHAINS // 3:
                yield from figure_setups(gpu, clocks=clocks)
            yield from _chain(gpu, names, sm_mhz, chain_sizes[1:] if number == 0 else chain_sizes, rng)
        yield from _alone(gpu, names, size, pcts[number % len(pcts)], sm_mhz, rng)
        yield from _alone(gpu, names, FIRST_SIZE, 100, gpu.max_mhz, rng)


def _alone(gpu: Gpu, names: Sequence[str], size: int, pct: int, sm_mhz: int, rng: np.random.Generator) -> list[Setup]:
    workloads = [Workload(str(name), size) for name in rng.permutation(list(names))]
    return _fitting(gpu, [Setup((Resident(workload, pct),), sm_mhz) for workload in workloads])


def _chain(
    gpu: Gpu, names: Sequence[str], sm_mhz: int, sizes: Sequence[int], rng: np.random.Generator
) -> Iterator[Setup]:
    chosen = rng.permutation(list(names))[:CHAIN_TASKS]
    drawn = [Workload(str(name), int(rng.choice(sizes))) for name in chosen]
    workloads = design.fitting_workloads(drawn, gpu.memory_mib)
    first_pct = int(rng.choice(design.MPS_PCTS))
    shares_pct = [first_pct, *design.co_runner_shares(first_pct, len(workloads) - 1, rng)]
    if rng.random() < design.ALL_FULL_PART:
        shares_pct = [100] * len(workloads)
    residents = list(map(Resident, workloads, shares_pct))
    while residents:
        yield Setup(tuple(residents), sm_mhz)
        residents.pop(int(rng.integers(len(residents))))


def _fitting(gpu: Gpu, setups: Sequence[Setup]) -> list[Setup]:
    needed_mib = [sum(memory_mib(resident.workload) for resident in setup.residents) for setup in setups]
    return [setup for setup, mib in zip(setups, needed_mib, strict=True) if mib <= gpu.memory_mib]
