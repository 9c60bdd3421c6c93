"""Predictions of the device model for a table of questions, for comparison with later measurements.

`answers.csv` has the predictions, `run.json` the commit and the hashes of code, data, questions and answers.
"""

from collections.abc import Iterator
from pathlib import Path

from heshare import device_query
from heshare.paper.provenance.results_folder import ResultsFolder
from heshare.shared.errors import InputError
from heshare.shared.inputs.csv_table import Row, read_table, write_rows
from heshare.world import catalogue
from heshare.world.workload import DEFAULT_PRECISION, ENGINES

COLUMNS = ("gpu", "residents")
OPTIONAL = ("sm_mhz", "power_limit_w", "precision", "engine")
ANSWERS = ("resident", "time_s", "time_low_s", "time_high_s", "reached_mhz", "power_w", "power_low_w", "power_high_w")
"""Columns of `answers.csv` after those of the question: one row a resident; low and high end the 90 % interval."""
_COLUMN_OF = {**{name: name for name in (*COLUMNS, *OPTIONAL)}, "power_cap_w": "power_limit_w"}
"""Column of a parameter that the device model refuses; those of a workload are in `residents`."""


def answer(questions: str | Path, folder: Path) -> tuple[int, Path]:
    """Answer a table of questions; write `answers.csv` and `run.json` to a folder.

    `questions` is a CSV file with the columns `gpu` and `residents` (such as `resnet50:16@50 vgg19:8@50`), and any of
    `sm_mhz`, `power_limit_w`, `precision` and `engine`, where an empty cell is the default. A folder that contains
    answers is refused. Returned are the number of questions and the path of the answers.

    Raises:
        InputError: a bad cell, a question that the device model refuses, or answers in the folder; nothing is written
            then.
    """
    path = Path(questions)
    if (folder / "answers.csv").exists():
        raise InputError("earlier answers", "a folder without any", "Name another folder.", file=folder / "answers.csv")
    question_rows = list(read_table(path, COLUMNS, OPTIONAL))
    rows = [row for number, question in enumerate(question_rows) for row in _rows(number, question)]
    if not rows:
        raise InputError("no question", "at least one row below the header", "Add a question.", file=path)
    header = ("question", *COLUMNS, *OPTIONAL, *ANSWERS)
    command = f"heshare estimate --grid {path}"
    about = ResultsFolder.of_command(folder, command, ["answers.csv"], inputs=[path], parameters={})
    about.write({"answers.csv": lambda temporary: write_rows(temporary, header, rows)})
    return len(question_rows), folder / "answers.csv"


def _rows(number: int, question: Row) -> Iterator[tuple[object, ...]]:
    cells = question.cells
    gpu, residents = question.text("gpu"), question.text("residents").split()
    sm_mhz = question.whole("sm_mhz", least=1) if cells.get("sm_mhz") else None
    limit_w = question.number_of("power_limit_w", above=True) if cells.get("power_limit_w") else None
    choices = cells.get("precision") or DEFAULT_PRECISION, cells.get("engine") or ENGINES[0]
    try:
        found = device_query.estimate(gpu, residents, sm_mhz, *choices, power_cap_w=limit_w)
    except InputError as error:
        raise InputError(
            error.found,
            error.expected,
            error.action,
            file=question.file,
            row=question.line,
            column=_COLUMN_OF.get(error.column or "", "residents"),
        ) from error
    low_w, high_w = found.power_uncertainty_parts.interval(found.power_w)
    held_w = catalogue.gpu(found.gpu).tdp_w if limit_w is None else limit_w
    power = found.sm_mhz, found.power_w, low_w, min(high_w, held_w)
    question_cells = (number, gpu, " ".join(residents), *[cells.get(name, "") for name in OPTIONAL])
    for resident, task in zip(residents, found.tasks, strict=True):
        yield (*question_cells, resident, task.time_s, *task.uncertainty_parts.interval(task.time_s), *power)
