"""The common style of all figures, and their files.

Figures have a column's or a page's width; no text is below `SMALLEST_PT` in print. Series differ in more than colour
(`series_styles`). The PNG has the caption under the axes, the PDF has none. Otherwise both have
the same layout, and their bytes are reproducible.
"""

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import LoadFlags
from matplotlib.image import imsave
from matplotlib.text import Text
from numpy.typing import NDArray

from heshare.paper.figures.series_styles import GRID, TEXT
from heshare.shared import files

COLUMN_IN = 3.33
PAGE_IN = 7.0
DPI = 300
SMALLEST_PT = 6.0
"""The least size of text in print."""

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
    "grid.color": GRID,
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
    "patch.linewidth": 0.5,
    "errorbar.capsize": 1.5,
    "figure.dpi": 150,
    "savefig.dpi": DPI,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.hashsalt": "heshare",
}


def apply() -> None:
    """Apply the style to all later figures of this process, such as a notebook's kernel."""
    mpl.rcParams.update(_RC)  # type: ignore[arg-type]


@contextmanager
def using() -> Iterator[None]:
    """Apply the style within a `with` block."""
    with mpl.rc_context(_RC):  # type: ignore[arg-type]
        yield


_CAPTION_PT = 6.0
_LINE_IN = 1.25 * _CAPTION_PT / 72


def origin(counts: Mapping[str, int]) -> str:
    """Return the provenance of rows as text; `counts` as from `provenance.check_provenances`, in its order."""
    words = {
        "emulated": "emulated (calibrated on published measurements)",
        "fitted": "by the device model fitted to the record",
        "measured": "measured",
        "published": "published",
    }
    if len(counts) == 1:
        return words[next(iter(counts))]
    return "; ".join(f"{n} row{'s' * (n != 1)} {words[kind]}" for kind, n in counts.items())


def with_origin(caption: str, counts: Mapping[str, int], words: str = "") -> str:
    """Return a caption that begins with a capital and ends with the provenance of its rows, or with `words`."""
    return f"{caption[:1].upper()}{caption[1:]} {words or origin(counts).capitalize() + '.'}"


def legend_colours(fig: Figure) -> dict[str, list[str]]:
    """Return the colours of each name in the legends of a figure, as `#RRGGBB`; white fills are omitted."""
    found: dict[str, set[str]] = {}
    legends = [*fig.legends, *(ax.get_legend() for ax in fig.axes)]
    for legend in (each for each in legends if each is not None):
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            found.setdefault(text.get_text(), set()).add(_colour(handle))
    return {name: sorted(colours) for name, colours in sorted(found.items())}


def _colour(handle: Any) -> str:
    # The colour of a line, or the fill of a patch or collection, or its edge if the fill is white.
    if hasattr(handle, "get_color"):
        shown = [handle.get_color()]
    else:
        shown = [each for each in (handle.get_facecolor(), handle.get_edgecolor()) if len(each)]
    colours = [to_hex(each[0] if np.ndim(each) > 1 else each) for each in shown]
    return next((each for each in colours if each != "#ffffff"), colours[0]).upper()


def smallest_text_pt(fig: Figure) -> float:
    """Return the size of the smallest text of a figure in print, pt; a figure wider than a page is printed smaller."""
    sizes = [text.get_fontsize() for text in fig.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return float(min(sizes, default=SMALLEST_PT) * min(1.0, PAGE_IN / fig.get_size_inches()[0]))


def write_figure(fig: Figure, out: Path, name: str, caption: str) -> Path:
    """Write a figure as `name.pdf` and with its caption as `name.png`, and close it; returns the PNG's path."""
    # Without dates and versions two runs write the same bytes. The layout settles at the second drawing; it is the same
    # in both files and is computed no more after that.
    fig.dpi = DPI
    fig.draw_without_rendering()
    fig.draw_without_rendering()
    fig.set_layout_engine("none")

    pdf = partial(FigureCanvasPdf(fig).print_pdf, metadata={"CreationDate": None, "Title": name})
    files.write_atomic(out / f"{name}.pdf", pdf)

    fig.dpi = DPI  # a PDF is drawn at 72 dots an inch
    pixels = np.vstack([_pixels(fig), _pixels(_caption_strip(fig.get_size_inches()[0], caption))])
    metadata: Any = {"Software": None}
    png = partial(imsave, arr=pixels, format="png", dpi=DPI, metadata=metadata)
    preview = files.write_atomic(out / f"{name}.png", png)
    plt.close(fig)
    return preview


def _pixels(fig: Figure) -> NDArray[np.uint8]:
    canvas: Any = FigureCanvasAgg(fig)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def _caption_strip(width_in: float, text: str) -> Figure:
    """Return a figure of a caption alone, as wide as the figure above it."""
    lines = wrapped(text, 72 * width_in * 0.975)
    height_in = (len(lines) + 0.6) * _LINE_IN
    strip = Figure(figsize=(width_in, height_in), dpi=DPI)
    bottom = 0.3 * _LINE_IN / height_in
    how: dict[str, Any] = {"fontsize": _CAPTION_PT, "color": TEXT, "va": "bottom", "linespacing": 1.2}
    strip.text(0.012, bottom, "\n".join(lines), **how)
    return strip


def png_size(content: bytes) -> tuple[int, int]:
    """Return width and height of a PNG, px, from its header."""
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def wrapped(text: str, width_pt: float) -> list[str]:
    """Return `text` as lines that are no wider than `width_pt` points in the caption's font."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and _width_pt(longer) > width_pt:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _width_pt(text: str) -> float:
    font = get_font(findfont(FontProperties()))
    font.set_size(_CAPTION_PT, 72)  # each time, because matplotlib shares the font
    font.set_text(text, 0.0, flags=LoadFlags.NO_HINTING)
    return float(font.get_width_height()[0]) / 64
