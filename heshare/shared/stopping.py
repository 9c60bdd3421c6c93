"""What a Ctrl-C has ended keeps its result."""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

Result = TypeVar("Result")


class Stopped(KeyboardInterrupt):
    """A Ctrl-C has ended what has a result already: `text` says what it is; as text itself it promises nothing."""

    def __init__(self, text: str = "", result: Any = None) -> None:
        super().__init__()
        self.text, self.result = text, result


class InterruptedWarning(UserWarning):
    """A Ctrl-C has ended a call, whose result is what was finished."""


def finished(call: Callable[[], Result]) -> Result:
    """Return what a call returns, or after a Ctrl-C what it had finished, with a warning at the caller's caller."""
    try:
        return call()
    except Stopped as stop:
        warnings.warn(f"interrupted: {stop.text}", InterruptedWarning, stacklevel=3)
        return cast(Result, stop.result)
