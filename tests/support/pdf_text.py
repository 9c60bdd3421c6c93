"""The ends of the texts of a PDF that matplotlib wrote with TrueType fonts."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import LoadFlags

_STRING = rb"\((?:\\.|[^\\)])*\)"
_TEXT = re.compile(
    rb"([-\d.]+) ([-\d.]+) [-\d.]+ [-\d.]+ ([-\d.]+) ([-\d.]+) cm\s+BT\s+/F\d+ ([\d.]+) Tf\s+0 0 Td\s+"
    rb"(\[(?:" + _STRING + rb"|[^\]()])*\]\s+TJ|" + _STRING + rb"\s+Tj)",
    re.S,
)


def texts_outside(path: Path) -> list[str]:
    """Return the texts of a page that do not begin and end on it, by half a point."""
    content = path.read_bytes()
    box = re.findall(rb"/MediaBox \[\s*([-\d.]+) ([-\d.]+) ([-\d.]+) ([-\d.]+)\s*\]", content)[-1]
    left, bottom, right, top = map(float, box)
    return [
        text
        for text, ends in _texts(content)
        if any(not (left - 0.5 <= x <= right + 0.5 and bottom - 0.5 <= y <= top + 0.5) for x, y in ends)
    ]


def _texts(content: bytes) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.S):
        try:
            page = zlib.decompress(stream)
        except zlib.error:
            continue
        for cos, sin, x, y, size, shown in _TEXT.findall(page):
            strings = b"".join(each[1:-1] for each in re.findall(_STRING, shown, re.S))
            plain = re.sub(
                rb"\\(.)", lambda found: {b"n": b"\n", b"r": b"\r"}.get(found[1], found[1]), strings, flags=re.S
            )
            decoded = plain.decode("utf-16-be", "replace")

            # A ligature is a glyph of a font of its own, whose code is a control character.
            text = "".join(letter for letter in decoded if letter >= " ")

            font.set_size(float(size), 72)
            font.set_text(text, 0.0, flags=LoadFlags.NO_HINTING)
            width, angle = font.get_width_height()[0] / 64, math.atan2(float(sin), float(cos))
            start = float(x), float(y)
            yield text, [start, (start[0] + width * math.cos(angle), start[1] + width * math.sin(angle))]
