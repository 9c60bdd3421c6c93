"""Ctrl-C during a long computation: the part that has finished is returned, with a warning."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class InterruptedWithResult(KeyboardInterrupt):
    """A Ctrl-C has ended a computation that has a partial `result`; `text` describes it."""

    def __init__(self, text: str = "", result: Any = None) -> None:
        # Without arguments: the text of the exception itself must not describe a result that its catcher drops.
        super().__init__()
        self.text = text
        self.result = result


class InterruptedWarning(UserWarning):
    """A Ctrl-C has ended a call, which returns a partial result."""


def return_partial_result(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a function that returns the partial result of `InterruptedWithResult`, with an `InterruptedWarning`."""

    @wraps(function)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except InterruptedWithResult as stop:
            warnings.warn(f"interrupted: {stop.text}", InterruptedWarning, stacklevel=2)
            return cast(Result, stop.result)

    return wrapper
