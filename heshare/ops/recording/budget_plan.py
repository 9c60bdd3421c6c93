"""Order of measurements under a time budget: an endless plan with the most informative settings first.

The first 125 visits or so, nine minutes on a real GPU, each determine a parameter of a device model or predictor. Large
sets of tasks, with the least information for their time, follow (see `plan`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, count

import numpy as np

from heshare.devices.iteration_time import arithmetic
from heshare.profiles import design
from heshare.profiles.recorder import Step
from heshare.profiles.visit import MeasurementProtocol, Setup
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import PRECISIONS, Resident, Workload

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
"""Fig. 4: inference batch size (not stated in the paper)."""
CLOCK_MODEL, CLOCK_SIZES = "resnet152", (16, 32)
"""Fig. 3: the workload whose time is shown against the clock, and its inference batch sizes."""
CLOCK_POINTS = 6
"""Fig. 3: clocks that a recording measures, spread evenly over the GPU's grid."""

FIRST_SIZE = 8
"""The inference batch size that is measured first; tasks mostly use 4 and 8."""
SECOND_SIZE = 4
"""The next one at which every workload is measured."""
IDLE_VISITS = 3
"""Visits to an idle GPU on which workers have CUDA contexts."""
NETWORKS = ("resnet50", "vgg19", "densenet201", "mobilenetv2", "bert_large", "gpt2")
"""Six representative networks: dense, wide, deep and narrow convolutions, an encoder, a decoder."""
PAIRED_NETWORKS = (*NETWORKS, "transformer")
"""The seven networks whose pairs are measured: those and one whose time is set by the host."""
LONE_SHARES_PCT = (50, 25, 10)
"""MPS percentages of a task alone."""
SATURATING_SIZES = (1, 4, 32, 128)
"""Inference batch sizes that show where power no longer grows."""
COPIES = (8, 4, 2)
"""Numbers of equal co-running tasks: the largest first, since the others then need no start."""
HALVED_PAIRS = 10
"""Pairs that are measured at 50 % each as well."""
CHAIN_TASKS = 7
"""Tasks of the largest set of a chain; its subsets follow without new starts, each of which takes seconds."""
CHAINS = 20
"""Chains of a round."""

START_S = 2.0
"""Time to stop the tasks of a real GPU and start others, s: an H100 took 1.0 to 2.6 s for one or two, 4 s for seven."""
PROTOCOL = MeasurementProtocol(window_s=2.0, warmup_s=0.5, readings=10)
"""Protocol of a visit under a budget: half as long as without one, so that twice as many settings are measured.

A step of the energy counter (20 to 100 ms) is then up to 5 % of a window, while a device model errs by 10 to 40 %. The
worker has warmed up for a second before."""


@dataclass(frozen=True, slots=True)
class PlannedVisit:
    """One visit of a forecast recording.

    All times are s, `begin_s` from the start of the recording; `start_s`, for starting and stopping tasks, is part of
    `took_s`. `points` is the number of new rows of the profile.
    """

    what: str
    begin_s: float
    start_s: float
    took_s: float
    points: int


# Single matrix products of the size of an 8B language model, which would show its memory bandwidth, are not measured: a
# row of a profile is a network of the catalogue.
def plan(
    gpu: Gpu, *, rng: np.random.Generator, clocks: bool = False, more_models: Iterable[str] = ()
) -> Iterator[Step]:
    """Yield visits in decreasing order of information, without end; the caller takes as many as fit into its time.

    Workloads run in their default precision, unless another one is stated, at inference batch size 8.

    1. Every workload alone at 100 %: the task features of Table II, which all else needs.
    2. No task, with CUDA contexts of workers: the power of a waiting GPU.
    3. The settings of the paper's Figs. 3 and 4, so that every recording can draw them.
    4. Six networks alone at 50, 25 and 10 %. With the pairs of Fig. 4 these are enough samples for a predictor.
    5. The six in the other arithmetics, which separate the time of the SMs from the number of operations.
    6. The six at inference batch sizes 1, 4, 32 and 128, which show where power saturates.
    7. Eight, four and two equal copies of each of the six.
    8. All pairs of seven networks at 100 %, then ten of them at 50 % each.
    9. The first settings again, for their repeatability.

    Then rounds without end, by other inference batch sizes and MPS percentages: every workload alone, the same under an
    MPS percentage, chains (seven workloads together, then six of them, and so on down to one, each task measured each
    time), and the first settings again. Chains are last, since their tasks differ least from set to set. With `clocks`
    every other round runs below the top clock; `more_models` are recorded in addition to those of Table IV.

    A setup that is repeated in a round is a further visit to it.
    """
    visits = Counter[Setup]()
    for setup in _setups(gpu, design.model_names(more_models), rng, clocks):
        visits[setup] += 1
        yield setup, visits[setup]


def forecast(
    steps: Iterable[Step], protocol: MeasurementProtocol, budget_s: float | None, *, start_s: float
) -> list[PlannedVisit]:
    """Return the visits that fit into a budget, s, and their points, without a measurement; None means all.

    Starting a set of tasks takes `start_s`, unless its tasks are already running, as in a chain or with fewer copies.
    """
    running = Counter[Resident]()
    known = set[design.Point]()
    planned = list[PlannedVisit]()
    now_s = protocol.repeats * protocol.window_s
    for setup, _ in steps:
        wanted = Counter(setup.residents)
        starting_s = 0.0 if wanted <= running else start_s
        took_s = starting_s + protocol.visit_s
        if budget_s is not None and now_s + took_s > budget_s:
            break
        new = set(setup.points()) - known
        planned.append(PlannedVisit(str(setup), now_s, starting_s, took_s, len(new)))
        running, known, now_s = wanted, known | new, now_s + took_s
    return planned


def figure_setups(gpu: Gpu, *, clocks: bool) -> list[Setup]:
    """Return the setups of Figs. 3 and 4 except workloads alone; without `clocks`, Fig. 3's at the top clock."""
    grid = gpu.clocks_mhz if clocks else gpu.clocks_mhz[-1:]
    last = len(grid) - 1
    clocks_mhz = sorted({grid[round(last * at / (CLOCK_POINTS - 1))] for at in range(CLOCK_POINTS)}, reverse=True)
    alone = [Setup((Resident(Workload(CLOCK_MODEL, size)),), mhz) for size in CLOCK_SIZES for mhz in clocks_mhz]
    pairs = [_pair(gpu, pair, 100) for pair in PAIRS]
    return _fitting(gpu, [*pairs, *alone])


def bit_reversal_order(levels: int) -> list[int]:
    """Return 0 .. levels-1 in van der Corput's order: the middle, the quarters, the eighths, ..., and 0 at the end.

    Every prefix is spread evenly.

    >>> bit_reversal_order(8)
    [4, 2, 6, 1, 5, 3, 7, 0]
    """
    bits = max(1, (levels - 1).bit_length())
    reversed_bits = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1, 2**bits))
    return [*(level for level in reversed_bits if level < levels), 0][:levels]


def _setups(gpu: Gpu, names: Sequence[str], rng: np.random.Generator, clocks: bool) -> Iterator[Setup]:
    first = _alone(gpu, names, FIRST_SIZE, rng)
    yield from first
    yield from [Setup((), gpu.max_mhz)] * IDLE_VISITS

    single = [*_lone_shares(gpu), *_other_precisions(gpu), *_saturating_sizes(gpu)]
    chosen = [*figure_setups(gpu, clocks=clocks), *single, *_copies(gpu), *_pairs(gpu, rng)]
    # Some of the pairs are those of Fig. 4.
    yield from (setup for setup in dict.fromkeys(chosen) if setup not in first)

    yield from first
    yield from _rounds(gpu, names, rng, clocks, first)


def _rounds(
    gpu: Gpu, names: Sequence[str], rng: np.random.Generator, clocks: bool, first: Sequence[Setup]
) -> Iterator[Setup]:
    spread_pcts = [design.MPS_PCTS[level] for level in bit_reversal_order(len(design.MPS_PCTS))]
    pcts = [50, 20, *(pct for pct in spread_pcts if pct not in (20, 50, 100))]
    sizes = [SECOND_SIZE, 16, 2, 32, 1, FIRST_SIZE]
    clocks_mhz = [gpu.clocks_mhz[level] for level in bit_reversal_order(len(gpu.clocks_mhz))]

    for number in count():
        below_top = clocks and number % 2 == 0
        sm_mhz = clocks_mhz[number // 2 % len(clocks_mhz)] if below_top else gpu.max_mhz
        size = sizes[number % len(sizes)]
        pct = pcts[number % len(pcts)]

        yield from _alone(gpu, names, size, rng)
        yield from _alone(gpu, names, size, rng, mps_pct=pct, sm_mhz=sm_mhz)
        for _ in range(CHAINS):
            yield from _chain(gpu, names, sm_mhz, rng)
        yield from first


def _alone(
    gpu: Gpu,
    names: Sequence[str],
    size: int,
    rng: np.random.Generator,
    *,
    mps_pct: int = 100,
    sm_mhz: int | None = None,
) -> list[Setup]:
    workloads = [Workload(str(name), size) for name in rng.permutation(list(names))]
    return _fitting(gpu, [Setup((Resident(workload, mps_pct),), sm_mhz or gpu.max_mhz) for workload in workloads])


def _lone_shares(gpu: Gpu) -> list[Setup]:
    # All networks at one share, since an idle worker is reused for the next task of the same share.
    residents = [Resident(Workload(name, FIRST_SIZE), pct) for pct in LONE_SHARES_PCT for name in NETWORKS]
    return _fitting(gpu, [Setup((resident,), gpu.max_mhz) for resident in residents])


def _other_precisions(gpu: Gpu) -> list[Setup]:
    # The precisions in which this GPU computes a network otherwise than in the default one.
    choices = [Workload(name, FIRST_SIZE, precision) for precision in PRECISIONS for name in NETWORKS]
    default = {name: arithmetic(gpu.name, Workload(name, FIRST_SIZE)) for name in NETWORKS}
    workloads = [one for one in choices if arithmetic(gpu.name, one) != default[one.model]]
    return _fitting(gpu, [Setup((Resident(workload),), gpu.max_mhz) for workload in workloads])


def _saturating_sizes(gpu: Gpu) -> list[Setup]:
    workloads = [Workload(name, size) for size in SATURATING_SIZES for name in NETWORKS]
    return _fitting(gpu, [Setup((Resident(workload),), gpu.max_mhz) for workload in workloads])


def _copies(gpu: Gpu) -> list[Setup]:
    workloads = [Workload(name, FIRST_SIZE) for name in NETWORKS]
    return _fitting(
        gpu, [Setup((Resident(workload),) * copies, gpu.max_mhz) for workload in workloads for copies in COPIES]
    )


def _pairs(gpu: Gpu, rng: np.random.Generator) -> list[Setup]:
    pairs = list(combinations(PAIRED_NETWORKS, 2))
    halved = [pairs[place] for place in rng.permutation(len(pairs))[:HALVED_PAIRS]]
    return _fitting(gpu, [*(_pair(gpu, pair, 100) for pair in pairs), *(_pair(gpu, pair, 50) for pair in halved)])


def _pair(gpu: Gpu, names: Sequence[str], mps_pct: int) -> Setup:
    return Setup(tuple(Resident(Workload(name, PAIR_SIZE), mps_pct) for name in names), gpu.max_mhz)


def _chain(gpu: Gpu, names: Sequence[str], sm_mhz: int, rng: np.random.Generator) -> Iterator[Setup]:
    chosen = rng.permutation(list(names))[:CHAIN_TASKS]
    drawn = [Workload(str(name), int(rng.choice([SECOND_SIZE, FIRST_SIZE]))) for name in chosen]
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
    return [setup for setup in setups if _fits(gpu, setup.residents)]


def _fits(gpu: Gpu, residents: Sequence[Resident]) -> bool:
    needed_mib = sum(memory_mib(resident.workload) for resident in residents)
    return needed_mib <= gpu.memory_mib and len(residents) <= gpu.mps_clients
