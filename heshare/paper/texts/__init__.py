"""Words for readers, in Jinja templates beside this module: a file for a notebook or the claims, a macro for a text.

A file such as `09_rivals.j2` holds macros, each with the names of its values:

    {% macro morak(energy, placed) %}
    Trade-off takes {{ energy | change }} energy than Morak;
    with HeShare's placement {{ placed | interval }}.
    {% endmacro %}

`render("09_rivals", "morak", energy=-26.0, placed=size)` returns it on one line. A line break, with the spaces and
empty lines around it, is one space, so that a sentence may stand inside an `if` on lines of its own. Nothing is
escaped. A macro may call others of its file, and those that it imports from another file.

Filters beside Jinja's own: `number("+.1f")` (Python's format), `signed` (`-26`), `tenths` (`-26.4`, never `-0.0`),
`change` (`26 % less`) and `interval` (`-26 % [-31, -20]`, of a value with an interval; `interval(1)`: one decimal).
The function `percent(value, low, high)` writes three numbers in the form of `interval`.
"""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from heshare.shared.errors import InputError, unknown

if TYPE_CHECKING:
    from jinja2 import Environment

    from heshare.lab.sweeps.statistics import ConfidenceInterval

_FOLDER = Path(__file__).parent
_LINE_BREAK = re.compile(r"\s*\n\s*")


def change(size_pct: float) -> str:
    """Return a change as words, such as `38 % less`."""
    return f"{abs(size_pct):.0f} % {'less' if size_pct < 0 else 'more'}"


def percent(value: float, low: float, high: float, digits: int = 0) -> str:
    """Return a change with its interval, such as `-12 % [-15, -9]`."""
    return f"{value:+.{digits}f} % [{low:+.{digits}f}, {high:+.{digits}f}]"


def interval(size: "ConfidenceInterval", digits: int = 0) -> str:
    return percent(size.value, size.low, size.high, digits)


def tenths(value: float) -> str:
    """Return a number with its sign and one decimal; zero has a plus."""
    return f"{round(value, 1) + 0.0:+.1f}"


@cache
def _environment() -> "Environment":
    # Imported when a text is made: commands that list notebooks import this module too.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(loader=FileSystemLoader(_FOLDER), undefined=StrictUndefined, autoescape=False)
    found.filters |= {"number": format, "signed": "{:+.0f}".format, "tenths": tenths}
    found.filters |= {"change": change, "interval": interval}
    found.globals["percent"] = percent
    return found


def render(file: str, name: str, /, **values: object) -> str:
    """Return the text of a macro of a file (without `.j2`), on one line; `values` are exactly those that it names.

    Raises:
        InputError: no such file or macro, no template, or a value that is missing, unknown or cannot be written so.
    """
    from jinja2 import TemplateError

    files = sorted(path.stem for path in _FOLDER.glob("*.j2"))
    if file not in files:
        raise unknown(file, files, column="file of texts")
    try:
        macros = vars(_environment().get_template(f"{file}.j2").module)
    except TemplateError as error:
        raise InputError(str(error), "a template", "Correct it.", file=f"{file}.j2") from None
    if name not in macros:
        raise unknown(name, [macro for macro in macros if not macro.startswith("_")], file=f"{file}.j2", column="macro")
    macro = macros[name]
    wrong = sorted({*macro.arguments}.symmetric_difference(values))
    try:
        if wrong:
            raise TypeError(f"missing or unknown: {', '.join(wrong)}")
        return _LINE_BREAK.sub(" ", macro(**values)).strip()
    except (TemplateError, ArithmeticError, LookupError, AttributeError, TypeError, ValueError) as error:
        expected = f"the values {', '.join(macro.arguments)}"
        raise InputError(
            str(error), expected, "Correct the template or its caller.", file=f"{file}.j2", column=name
        ) from error
