"""One style for every figure: column width, 8 pt, colour-blind safe, and never by colour alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import matplotlib as mpl

COLUMN_IN = 3.33
PAGE_IN = 7.0
DPI = 300

_RC: dict[str, object] = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.5,
    "patch.linewidth": 0.5,
    "errorbar.capsize": 1.5,
    "figure.dpi": 150,
    "savefig.dpi": DPI,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.hashsalt": "heshare",
}


@dataclass(frozen=True, slots=True)
class Look:
    """How one series is drawn: colour, hatch of its bars, marker and dash of its line.

    Attributes:
        colour: of the palette of Okabe and Ito, which the colour-blind can tell apart.
        hatch: matplotlib hatch of bars, so that a grey print still tells.
        marker: matplotlib marker.
        line: matplotlib line style.
    """

    colour: str
    hatch: str
    marker: str
    line: str


_LOOKS = (
    Look("#E69F00", "////", "o", "-"),
    Look("#56B4E9", "....", "s", "--"),
    Look("#009E73", "", "^", "-."),
    Look("#CC79A7", "\\\\\\\\", "D", ":"),
    Look("#0072B2", "xxxx", "v", "-"),
    Look("#D55E00", "----", "P", "--"),
    Look("#F0E442", "++++", "X", "-."),
    Look("#BBBBBB", "", "*", ":"),
)

_FIXED = {
    "T4": 0,
    "V100": 1,
    "A100": 2,
    "H100": 3,
    "H200": 4,
    "Random": 7,
    "Sched-only": 3,
    "Trade-off": 2,
    "En-opt": 4,
    "JCT-opt": 5,
    "Morak": 0,
    "μ-Serve": 1,
    "HeShare+": 6,
    "HeShare+ Trade-off": 6,
    "Morak, HeShare's placement": 3,
    "μ-Serve, HeShare's placement": 7,
}


MEASURED = " (measured)"
"""What marks a recorded GPU's name in a figure."""


def look(name: str, index: int = 0) -> Look:
    """The look of a GPU or policy, the same in every figure; `index` chooses one for any other name.

    A measured GPU has the colour and dash of the emulated one, but its own hatch and marker.
    """
    if name.endswith(MEASURED):
        plain = look(name.removesuffix(MEASURED), index)
        return replace(plain, hatch=plain.hatch + "oo", marker="*")
    name = name.removesuffix(" (emulated)")
    return _LOOKS[_FIXED.get(name, index) % len(_LOOKS)]


def apply() -> None:
    """Use the style for everything that this process draws from now on (a notebook's kernel)."""
    mpl.rcParams.update(_RC)  # type: ignore[arg-type]


@contextmanager
def using() -> Iterator[None]:
    """Use the style within a `with` block only."""
    with mpl.rc_context(_RC):  # type: ignore[arg-type]
        yield
