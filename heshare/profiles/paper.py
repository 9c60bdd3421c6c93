"""The settings behind the paper's Figs. 3 and 4, so that the recorder measures them and the figures find them."""

from __future__ import annotations

from heshare.profiles.visit import Setup
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
"""Fig. 4: their inference batch size (the paper does not say)."""
CLOCK_MODEL, CLOCK_SIZES = "resnet152", (16, 32)
"""Fig. 3: the workload whose time is shown against the clock, and its inference batch sizes."""
CLOCK_POINTS = 6
"""Fig. 3: clocks that a recording measures, spread evenly over the card's grid."""


def setups(gpu: Gpu, *, clocks: bool) -> list[Setup]:
    """What Figs. 3 and 4 need besides every workload alone; without `clocks`, Fig. 3 at the top clock only."""
    grid = gpu.clocks_mhz if clocks else gpu.clocks_mhz[-1:]
    last = len(grid) - 1
    chosen = sorted({grid[round(last * at / (CLOCK_POINTS - 1))] for at in range(CLOCK_POINTS)}, reverse=True)
    alone = [Setup((Resident(Workload(CLOCK_MODEL, size), 100),), mhz) for size in CLOCK_SIZES for mhz in chosen]
    pairs = [Setup(tuple(Resident(Workload(name, PAIR_SIZE), 100) for name in pair), gpu.max_mhz) for pair in PAIRS]
    return [one for one in [*pairs, *alone] if _fits(gpu, one)]


def _fits(gpu: Gpu, setup: Setup) -> bool:
    return sum(memory_mib(one.workload) for one in setup.residents) <= gpu.memory_mib
