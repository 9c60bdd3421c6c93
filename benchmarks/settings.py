"""Choice of every system's best setting on task sets that no comparison uses, written to `data/settings.csv`.

`python benchmarks/settings.py` takes some minutes; `python benchmarks/settings.py mixes` renews one study alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pandas as pd

from heshare.paper import tables
from heshare.paper.studies import best_settings
from heshare.shared import files


def main(studies: Sequence[str]) -> None:
    """Run the studies and write their rows in place of those of the table."""
    path = files.root() / "data" / best_settings.TABLE
    found = {study: best_settings.tried(study) for study in studies}
    before = best_settings.read() if path.exists() else pd.DataFrame({"study": []})
    parts = [found.get(study, before[before["study"] == study]) for study in best_settings.STUDIES]
    text = tables.to_csv(pd.concat([part for part in parts if len(part)], ignore_index=True))
    files.write_atomic(path, lambda target: target.write_text(text, "utf-8"))
    print(f"{path}: " + "; ".join(f"{study} {chosen_text(frame)}" for study, frame in found.items()))


def chosen_text(frame: pd.DataFrame) -> str:
    """Return the chosen policies in one line."""
    return ", ".join(frame.loc[frame["chosen"], "policy"])


if __name__ == "__main__":
    main(sys.argv[1:] or list(best_settings.STUDIES))
