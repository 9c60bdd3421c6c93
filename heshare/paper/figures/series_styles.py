"""The registry of colours, markers and dashes: one style for each policy, search and GPU, the same in every figure.

The hue is that of the family: HeShare's plans are blue, HeShare+ is black, Random is grey, Morak orange, μ-Serve
vermilion, other systems are muted, and GPUs are a ramp of greens, which no policy has. A baseline with HeShare's
placement has the hue of the baseline, unfilled, and so have HeShare as written in the paper and a baseline that starts
all tasks of a GPU at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

from heshare.shared.errors import require
from heshare.world.catalogue import gpus


class LineArguments(TypedDict, total=False):
    """Arguments of `Axes.plot` that a figure changes in the style of a series; sizes and widths in pt."""

    color: str
    linestyle: str
    linewidth: float
    marker: str
    markersize: float
    markerfacecolor: str
    markeredgewidth: float
    label: str


@dataclass(frozen=True, slots=True)
class SeriesStyle:
    """The style of one series in matplotlib's terms: colour, marker and dash of its line.

    A series that is not filled has white bars and markers with coloured edges.
    """

    colour: str
    marker: str = "o"
    line: str = "-"
    filled: bool = True

    @property
    def face(self) -> str:
        """The colour inside bars and markers."""
        return self.colour if self.filled else "white"

    def line_arguments(self, **changes: Unpack[LineArguments]) -> dict[str, Any]:
        """Return colour, marker and dash as arguments of `Axes.plot`, with changes."""
        arguments: dict[str, Any] = {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.line,
            "markerfacecolor": self.face,
        }
        arguments.update(changes)
        return arguments


_BLUE, _BLACK, _GREY, _ORANGE, _VERMILION = "#0072B2", "#000000", "#999999", "#E69F00", "#D55E00"
EDGE, GUIDE, FAINT, BAND, GRID, TEXT = "#333333", "#999999", "#BBBBBB", "#EBEBEB", "#DDDDDD", "#555555"
"""Edges of marks, lines to compare with, marks of little weight, bands behind marks, grids, and small text."""
CLOCK = _BLUE
"""The SM clock in timelines."""
LOAD_CLASSES = ("low", "medium", "high", "none")
"""Load classes of workloads in the order of their colours (`category_style`); training has none."""
EFFECT = _BLUE
"""A single series of marks that is neither a system, a GPU nor a category."""
STAGES: Mapping[str, str] = {
    "world": "#F2F2F2",
    "prediction": "#DCECF8",
    "scheduling": "#D9F0E5",
    "running": "#FBE9CF",
    "devices": "#F7DFD2",
}
"""Insides of the boxes of Fig. 5, by stage."""
_QUEUE, _PACKED, _POWER = "#5B6673", "#8A7462", "#6F5B86"
"""Muted hues of other published systems: queues, systems that share GPUs, systems that limit clocks or power."""

SERIES: dict[str, SeriesStyle] = {
    # GPUs, and their records
    "T4": SeriesStyle("#A3B300", "o", "-"),
    "V100": SeriesStyle("#14886A", "s", "--"),
    "A100": SeriesStyle("#06382A", "^", "-."),
    "H100": SeriesStyle("#3F6212", "D", ":"),
    "H200": SeriesStyle("#7FD1AE", "v", "-"),
    "A30": SeriesStyle("#4F9D69", "P", "--"),
    "A10": SeriesStyle("#86A873", "<", "-."),
    "L4": SeriesStyle("#B5C99A", ">", ":"),
    "L40S": SeriesStyle("#6A994E", "p", "-"),
    "RTX": SeriesStyle("#386641", "h", "--"),
    "P100": SeriesStyle("#A3B18A", "8", "-."),
    "another GPU": SeriesStyle("#74A57F", "X", "-"),
    # The paper's policies
    "Random": SeriesStyle(_GREY, "*", ":"),
    "Random, all at once": SeriesStyle(_GREY, "*", ":", filled=False),
    "Sched-only": SeriesStyle("#6E6E6E", "D", ":"),
    "Sched-only, all at once": SeriesStyle("#6E6E6E", "D", ":", filled=False),
    "HeShare": SeriesStyle(_BLUE, "o", "-"),
    "Trade-off": SeriesStyle(_BLUE, "o", "-"),
    "En-opt": SeriesStyle("#3B97D3", "s", "--"),
    "JCT-opt": SeriesStyle("#003F6B", "v", "-."),
    "HeShare online": SeriesStyle("#3B6FD3", "P", "-"),
    "Morak": SeriesStyle(_ORANGE, "^", "-"),
    "μ-Serve": SeriesStyle(_VERMILION, "P", "--"),
    # HeShare+
    "HeShare+": SeriesStyle(_BLACK, "X", "-"),
    "HeShare+ Trade-off": SeriesStyle(_BLACK, "X", "-"),
    "HeShare+ En-opt": SeriesStyle(_BLACK, "s", "--"),
    "HeShare+ JCT-opt": SeriesStyle(_BLACK, "v", "-."),
    "HeShare+ online": SeriesStyle(_BLACK, "P", "-"),
    "Marginal": SeriesStyle("#404040", "d", "-"),
    "Marginal, 30 W": SeriesStyle("#404040", "<", "-"),
    "Marginal, 300 W": SeriesStyle("#404040", ">", "-"),
    # Other published systems
    "FIFO": SeriesStyle(_QUEUE, "s", ":"),
    "Exclusive": SeriesStyle(_QUEUE, "p", "-"),
    "One at a time": SeriesStyle(_QUEUE, "p", "-"),
    "SJF": SeriesStyle(_QUEUE, "v", "--"),
    "SRTF": SeriesStyle(_QUEUE, "d", "-."),
    "SRTF at 0.8 clock": SeriesStyle(_QUEUE, "d", "-", filled=False),
    "SJF, fastest GPU": SeriesStyle(_QUEUE, "v", "-", filled=False),
    "FIFO_packed": SeriesStyle("#A3906F", "h", "--"),
    "Gandiva": SeriesStyle("#6B4F3A", "H", "-."),
    "EaCO": SeriesStyle(_PACKED, "<", "-"),
    "FIKIT": SeriesStyle("#B0798C", ">", "-"),
    "MISO": SeriesStyle("#6A3D5A", "8", "-"),
    "Equal MPS shares": SeriesStyle("#B5A27A", "h", "-."),
    "Static": SeriesStyle("#9A7FA8", "D", "--"),
    "PowerFlow": SeriesStyle(_POWER, "p", "-"),
    "PowerFlow, 0.9": SeriesStyle(_POWER, "p", "--", filled=False),
    "FGD": SeriesStyle(_QUEUE, "H", "-"),
    "PWR": SeriesStyle("#A88A2E", "X", "--"),
    "BatchDVFS": SeriesStyle("#7A7A2E", "o", "-"),
    "Clock alone": SeriesStyle("#B58A8A", "v", "-"),
    "Inference batch size alone": SeriesStyle(_POWER, "s", "-"),
    "Clipper": SeriesStyle(_QUEUE, "P", "-"),
    # Searches and bounds
    "NSGA-II": SeriesStyle("#8C564B", "s", "--"),
    "NSGA-II at 1/n": SeriesStyle("#8C564B", "s", ":", filled=False),
    "SPEA2": SeriesStyle("#B07AA1", "^", "-."),
    "SPEA2 at 1/n": SeriesStyle("#B07AA1", "^", ":", filled=False),
    "MOEA/D": SeriesStyle("#8C7A00", "D", ":"),
    "proven bound": SeriesStyle("#595959", "", "--"),
    "planned on the truth, run": SeriesStyle("#7B1E3A", "o", "-"),
    "planned on predictions, run": SeriesStyle("#C97B63", "s", "--"),
    "planned on predictions, as predicted": SeriesStyle("#C97B63", "s", ":", filled=False),
    "a user's policy": SeriesStyle("#C2185B", "h", "-"),
}

PLACED = ", HeShare's placement"
"""The ending of a baseline's title with HeShare's placement."""
LITERALLY = ", literally"
"""The ending of a title of HeShare that follows the paper's text in all settings."""
MEASURED, FITTED = " (measured)", " (fitted)"
"""The suffixes of a GPU's name in a figure: as recorded, and by the device model fitted to its record."""
_ENDS = (" ", ",", "(", "-")
"""What may follow a registered name in a title."""

CATEGORIES = (
    SeriesStyle("#CC79A7", "o", "-"),
    SeriesStyle("#5B3A8C", "s", "--"),
    SeriesStyle("#A65628", "^", "-."),
    SeriesStyle("#E377C2", "D", ":"),
    SeriesStyle("#9467BD", "v", "-"),
    SeriesStyle("#C49C94", "P", "--"),
    SeriesStyle("#4B3621", "X", "-."),
    SeriesStyle("#D7A9E3", "*", ":"),
)


def style_own(title: str) -> None:
    """Assign the style reserved for a user's policy, so that it can be drawn with the others."""
    SERIES.setdefault(title, SERIES["a user's policy"])


def series_style(name: str) -> SeriesStyle:
    """Return the style of a GPU, policy or search, the same in every figure.

    A title followed by settings, such as `Morak (cap=1.0)` or `NSGA-II at 0.1`, has the style of the longest
    registered name that it begins with. A measured GPU has the colour and dash of the emulated one, but another
    marker; it is open for the model fitted to the record. A GPU of `data/gpus.csv` that the registry does not name has
    the style of other GPUs.

    Raises:
        InputError: the registry has no such name.
    """
    if name.endswith(MEASURED):
        return replace(series_style(name.removesuffix(MEASURED)), marker="*")
    if name.endswith(FITTED):
        return replace(series_style(name.removesuffix(FITTED)), marker="*", filled=False)
    if PLACED in name:
        return replace(series_style(name.replace(PLACED, "")), filled=False)
    if name.endswith(LITERALLY):
        return replace(series_style(name.removesuffix(LITERALLY)), line=":", filled=False)
    known = [each for each in SERIES if name == each or (name.startswith(each) and name[len(each)] in _ENDS)]
    if not known and name in gpus():
        return SERIES["another GPU"]
    action = "Add it to heshare/paper/figures/series_styles.py; for a new policy: style_own(title)."
    require(None, f"a series {name!r}", bool(known), "a name of the registry of styles", action)
    return SERIES[max(known, key=len)]


def category_style(index: int) -> SeriesStyle:
    """Return the style of series `index` of a figure whose series are neither systems nor GPUs.

    Its colours are those of no system and no GPU.
    """
    return CATEGORIES[index % len(CATEGORIES)]
