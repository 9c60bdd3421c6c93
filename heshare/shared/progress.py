"""Progress on stderr: a bar on a terminal, and elsewhere one line once a second has passed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Timer

from tqdm import tqdm

from heshare.shared.compiling import compilation_told_by

LINE_AFTER_S = 1.0
Update = Callable[[int, int | None], None]
"""Is called with the steps done, and the steps in all or None where nobody knows."""


@contextmanager
def line_after_a_second(text: str, shown: bool) -> Iterator[None]:
    timer = Timer(LINE_AFTER_S, lambda: print(text, file=sys.stderr, flush=True))  # noqa: T201
    timer.daemon = True
    if shown:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def bar(name: str, unit: str, shown: bool) -> Iterator[Update]:
    """Show a bar on stderr while the block runs, and yield what moves it; nothing is shown unless `shown`.

    Before it first moves it says so if something has to be compiled.
    """
    with tqdm(desc=name, unit=unit, bar_format="{desc}", disable=not shown) as drawn, ExitStack() as stack:
        if shown:
            stack.enter_context(compilation_told_by(lambda text: drawn.set_description_str(f"{name} ({text})")))

        def update(done: int, total: int | None) -> None:
            drawn.desc = name
            drawn.bar_format = None
            drawn.total = total
            drawn.update(done - drawn.n)

        yield update


def rounds_of(update: Update, total: int | None) -> Callable[[int, object], None]:
    """Return what moves a bar after each round of an improved search; `total` is None where a time ends the search."""

    def after_round(done: int, front: object) -> None:
        update(done, total)

    return after_round
