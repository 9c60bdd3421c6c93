"""Small drawings in the table of claims: the paper's value against the value found here with its interval, as SVG."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from heshare.paper.claims.verdicts import Claim

WIDTH, HEIGHT, _MARGIN = 180, 30, 8
_MIDDLE = HEIGHT / 2
_SCALES: Mapping[str, str] = {
    "reduction": "change",
    "limit": "change",
    "error": "error",
    "ratio": "ratio",
    "floor": "ratio",
    "value": "ratio",
}
"""The scale of each kind of claim; claims on one scale can be compared by eye."""
_NEUTRAL = {"change": 0.0, "error": 0.0, "ratio": 1.0}
"""The value that means no change, or no error."""


@dataclass(frozen=True, slots=True)
class DrawnClaim:
    """What is drawn of a claim: the paper's ends, value and interval here, and values against other forms of a rival.

    NaN: not there.
    """

    claim: Claim
    paper: tuple[float, float]
    value: float
    low: float
    high: float
    placed: float
    best: float


Place = Callable[[float], float]


def places(drawn: Sequence[DrawnClaim]) -> dict[str, Place]:
    """Return, by kind of claim, the function from a value to its place in the drawing, px; an ordering has none."""
    found: dict[str, Place] = {}
    for scale in dict.fromkeys(_SCALES.values()):
        kinds = [kind for kind, its in _SCALES.items() if its == scale]
        values = [
            value
            for one in drawn
            if one.claim.kind in kinds
            for value in (*one.paper, one.value, one.low, one.high, one.placed, one.best)
            if math.isfinite(value)
        ]
        found |= dict.fromkeys(kinds, _place([*values, _NEUTRAL[scale]], logarithmic=scale == "ratio"))
    return found


def _place(values: Sequence[float], *, logarithmic: bool) -> Place:
    def position(value: float) -> float:
        return math.log(max(value, 1e-6)) if logarithmic else value

    least, most = position(min(values)), position(max(values))
    width = (WIDTH - 2 * _MARGIN) / ((most - least) or 1.0)
    return lambda value: _MARGIN + (position(value) - least) * width


def interval_svg(drawn: DrawnClaim, place: Place, text: str) -> str:
    """Return the drawing of a claim with a number: bars at the paper's ends, a mark and a line for the value here.

    A hollow circle is the value against a rival placed like HeShare, a hollow square that at a rival's own best. `text`
    says the same in words.
    """
    zero = place(_NEUTRAL[_SCALES[drawn.claim.kind]])
    parts = [_line(zero, 3, zero, HEIGHT - 3, "no-change")]
    ends = sorted({place(end) for end in drawn.paper if math.isfinite(end)})
    parts += [_line(ends[0], _MIDDLE, ends[-1], _MIDDLE, "paper-range")] if len(ends) > 1 else []
    parts += [_line(end, 4, end, HEIGHT - 4, "paper-value") for end in ends]
    if math.isfinite(drawn.low):
        parts.append(_line(place(drawn.low), _MIDDLE, place(drawn.high), _MIDDLE, "interval"))
    for value, shape in ((drawn.placed, "circle"), (drawn.best, "square")):
        parts += [_hollow(place(value), shape)] if math.isfinite(value) else []
    if math.isfinite(drawn.value):
        parts.append(f'<circle class="value" cx="{place(drawn.value):.1f}" cy="{_MIDDLE:g}" r="4.5"/>')
    return _svg(parts, text)


def parts_svg(holds: int, fails: int, text: str) -> str:
    """Return the drawing of an ordering: a filled square for each part that holds, a hollow one for each that fails."""
    step = min(18.0, (WIDTH - 2 * _MARGIN) / max(holds + fails, 1))
    side = 0.7 * step
    parts = [
        f'<rect class="{"part-holds" if index < holds else "part-fails"}" x="{_MARGIN + index * step:.1f}" '
        f'y="{_MIDDLE - side / 2:.1f}" width="{side:.1f}" height="{side:.1f}"/>'
        for index in range(holds + fails)
    ]
    return _svg(parts, text)


def _line(x1: float, y1: float, x2: float, y2: float, name: str) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:g}" x2="{x2:.1f}" y2="{y2:g}"/>'


def _hollow(x: float, shape: str) -> str:
    if shape == "circle":
        return f'<circle class="form" cx="{x:.1f}" cy="{_MIDDLE:g}" r="4"/>'
    return f'<rect class="form" x="{x - 3.5:.1f}" y="{_MIDDLE - 3.5:g}" width="7" height="7"/>'


def _svg(parts: Sequence[str], text: str) -> str:
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg class="interval" {size} role="img" aria-label={quoteattr(text)}>{"".join(parts)}</svg>'
