"""The common style of all figures, and their files.

Figures have a column's width and 8 pt text. They are colour-blind safe: series differ in more than colour. The caption
is under the axes. PDF and PNG have the same layout, and their bytes are reproducible.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath

from heshare import files

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
class SeriesStyle:
    """The style of one series in matplotlib's terms: colour, hatch of its bars, marker and dash of its line.

    Colours are of the colour-blind safe palette of Okabe and Ito. The hatch is for prints in grey.
    """

    colour: str
    hatch: str
    marker: str
    line: str

    def line_arguments(self, **changes: Any) -> dict[str, Any]:
        """Return colour, marker and dash as arguments of `Axes.plot`, with changes."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.line, **changes}


_STYLES = (
    SeriesStyle("#E69F00", "////", "o", "-"),
    SeriesStyle("#56B4E9", "....", "s", "--"),
    SeriesStyle("#009E73", "", "^", "-."),
    SeriesStyle("#CC79A7", "\\\\\\\\", "D", ":"),
    SeriesStyle("#0072B2", "xxxx", "v", "-"),
    SeriesStyle("#D55E00", "----", "P", "--"),
    SeriesStyle("#F0E442", "++++", "X", "-."),
    SeriesStyle("#BBBBBB", "", "*", ":"),
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
"""The suffix of a recorded GPU's name in a figure."""


def series_style(name: str, index: int = 0) -> SeriesStyle:
    """Return the style of a GPU or policy, the same in every figure; `index` chooses one for any other name.

    A measured GPU has the colour and dash of the emulated one, but its own hatch and marker.
    """
    if name.endswith(MEASURED):
        plain = series_style(name.removesuffix(MEASURED), index)
        return replace(plain, hatch=plain.hatch + "oo", marker="*")
    name = name.removesuffix(" (emulated)")
    return _STYLES[_FIXED.get(name, index) % len(_STYLES)]


def apply() -> None:
    """Apply the style to all later figures of this process, such as a notebook's kernel."""
    mpl.rcParams.update(_RC)  # type: ignore[arg-type]


@contextmanager
def using() -> Iterator[None]:
    """Apply the style within a `with` block."""
    with mpl.rc_context(_RC):  # type: ignore[arg-type]
        yield


_CAPTION_PT = 5.5
_LINE_IN = 1.25 * _CAPTION_PT / 72


def origin(counts: Mapping[str, int]) -> str:
    """Return the provenance of rows in words; `counts` as from `provenance.check_provenances`, in its order."""
    words = {
        "emulated": "emulated (calibrated on published measurements)",
        "measured": "measured",
        "published": "published values",
    }
    if len(counts) == 1:
        return words[next(iter(counts))]
    return ", ".join(f"{words[kind]} ({n} rows)" for kind, n in counts.items())


def with_origin(caption: str, counts: Mapping[str, int]) -> str:
    """Return a caption that begins with a capital and ends with the provenance of its rows."""
    return f"{caption[:1].upper()}{caption[1:]} {origin(counts).capitalize()}."


def write_figure(fig: Figure, out: Path, name: str, caption: str) -> Path:
    """Write a figure with its caption as `name.pdf` and `name.png` and close it; returns the PNG's path."""
    _write_caption(fig, caption)
    # Without dates and versions two runs write the same bytes. Both files have the same layout.
    files.write_atomic(out / f"{name}.pdf", partial(fig.savefig, metadata={"CreationDate": None, "Title": name}))
    fig.set_layout_engine("none")
    preview = files.write_atomic(out / f"{name}.png", partial(fig.savefig, metadata={"Software": None}))
    plt.close(fig)
    return preview


def _write_caption(fig: Figure, text: str) -> None:
    """Put the caption under the axes, inside the figure's width, by giving it a strip of its own."""
    width_in, height_in = fig.get_size_inches()
    lines = wrapped(text, 72 * width_in * 0.975)
    strip = (len(lines) + 0.6) * _LINE_IN
    fig.set_size_inches(width_in, height_in + strip)
    share = strip / (height_in + strip)
    engine = fig.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0, share, 1, 1 - share))  # type: ignore[call-arg]
    bottom = 0.3 * _LINE_IN / (height_in + strip)
    style = {"fontsize": _CAPTION_PT, "color": "#555555", "va": "bottom", "linespacing": 1.2}
    fig.text(0.012, bottom, "\n".join(lines), **style)  # type: ignore[arg-type]


def wrapped(text: str, width_pt: float) -> list[str]:
    """Return `text` as lines that are no wider than `width_pt` points in the caption's font."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and TextPath((0, 0), longer, size=_CAPTION_PT).get_extents().width > width_pt:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
