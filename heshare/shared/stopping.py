"""What a Ctrl-C has ended keeps its result."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Stopped(KeyboardInterrupt):
    """A Ctrl-C has ended what has a result already: `text` says what it is; as text itself it promises nothing."""

    def __init__(self, text: str = "", result: Any = None) -> None:
        super().__init__()
        self.text, self.result = text, result


class InterruptedWarning(UserWarning):
    """A Ctrl-C has ended a call, whose result is what was finished."""


def keeping_result(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let a function return what it had finished when a Ctrl-C ends it, with a warning to its caller."""

    @wraps(function)
    def kept(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        try:
            return function(*args, **options)
        except Stopped as stop:
            warnings.warn(f"interrupted: {stop.text}", InterruptedWarning, stacklevel=2)
            return cast(Result, stop.result)

    return kept
