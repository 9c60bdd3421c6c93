"""Formatting of numbers, energies and ranges for output, and of found values for error messages."""

from numbers import Real

_ENERGIES = (("GJ", 1e9), ("MJ", 1e6), ("kJ", 1e3), ("J", 1.0))


def number(value: float) -> str:
    """Return a number with four significant digits, and thousands separated: 2,434,564, 12.5, 0.001235."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def energy_unit(energy_j: float) -> tuple[str, float]:
    return next((unit for unit in _ENERGIES if abs(energy_j) >= unit[1]), _ENERGIES[-1])


def energy(energy_j: float) -> str:
    """Return an energy in a suitable unit, such as `5.21 MJ`."""
    unit, joules = energy_unit(energy_j)
    return f"{energy_j / joules:.3g} {unit}"


def energy_span(low_j: float, high_j: float) -> str:
    """Return a range of energies in one unit, such as `5.21 to 7.2 MJ`."""
    joules = energy_unit(high_j)[1]
    return f"{low_j / joules:.3g} to {energy(high_j)}"


def time_span(low_s: float, high_s: float) -> str:
    """Return a range of times, such as `1,658 to 2,374 s`."""
    return f"{number(low_s)} to {number(high_s)} s"


def short(text: str, width: int = 60) -> str:
    """Return a text cut to a width, with `...` at the cut."""
    return text if len(text) <= width else text[: width - 3] + "..."


def printable(text: str) -> str:
    """Return a text on one line without control characters; a text of another user may hold terminal commands."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def found(value: object) -> str:
    """Return a short text of any argument, for messages: numbers and short texts unchanged, others by their type."""
    if value is None or isinstance(value, bool | Real | str):
        text = repr(value)
        return text if len(text) <= 60 else f"text of {len(str(value))} characters"
    if isinstance(value, list | tuple | dict):
        kind = type(value).__name__
        return f"a {kind} of {len(value)}" if value else f"an empty {kind}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"an object of {type(value).__name__}"
