"""Figures as files: the caption under the axes, PDF and PNG of one layout, the same bytes every time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath

from heshare import files

_CAPTION_PT = 5.5
_LINE_IN = 1.25 * _CAPTION_PT / 72


def origin(counts: Mapping[str, int]) -> str:
    """Where rows come from, in words; `counts` as from `provenance.check_kinds`, in its order."""
    words = {
        "emulated": "emulated (calibrated on published measurements)",
        "measured": "measured",
        "published": "published values",
    }
    if len(counts) == 1:
        return words[next(iter(counts))]
    return ", ".join(f"{words[kind]} ({n} rows)" for kind, n in counts.items())


def write_figure(fig: Figure, out: Path, name: str, caption: str) -> Path:
    """Write a figure with its caption as `name.pdf` and `name.png` and close it; returns the PNG's path."""
    _write_caption(fig, caption)
    # Dates and versions would make two runs differ; one layout serves both files.
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
    """`text` in lines that are no wider than `width_pt` points in the caption's font."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and TextPath((0, 0), longer, size=_CAPTION_PT).get_extents().width > width_pt:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
