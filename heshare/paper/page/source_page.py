"""The page of the figures of a source: how they came about, what its cards say of the paper, and what they cannot."""

from pathlib import Path
from typing import Any

import pandas as pd

from heshare.paper.claims import card_claims
from heshare.paper.notebooks.output_folders import PAGE
from heshare.paper.page import notebook_pages, outputs, results_page
from heshare.paper.studies import live_results, sources
from heshare.paper.studies.sources import Source
from heshare.paper.tables import cell
from heshare.shared import files
from heshare.shared.extras import require_extra

_SHARING = {"Sched-only": "one task at a time, in the order of HeShare's first stage", "Random": "queues at random"}
"""What Trade-off is compared with, for the worth of sharing, by title."""
_METRICS = {"energy_active_j": "energy", "avg_jct_s": "average JCT"}


def write(folder: Path, table: pd.DataFrame, copies: Path, source: Source) -> Path:
    """Write the page of a source and those of its notebooks into `folder`; return the path of the first.

    Args:
        folder: the folder of the outputs.
        table: the statements, as from `card_claims.write`.
        copies: the folder of the executed notebooks by profile.
        source: the cards.

    Raises:
        InputError: a library of the extra `notebooks` is missing.
    """
    require_extra("notebooks", "the page of results")
    made = outputs.read(folder)
    environment = results_page.environment(folder, with_beyond=False)
    notebook = environment.get_template("notebook.html.j2")
    pages = notebook_pages.write(folder, copies, made, lambda page: notebook.render(vars(page)) + "\n")

    errors = source.model_errors if source.records else pd.DataFrame()
    content = {
        "source": source,
        "profile": made[0].profile if made else "paper",
        "pages": pages,
        "figures": [output for output in made if output.name.startswith("fig")],
        "tables": [output for output in made if output.name.startswith("table5")],
        "others": [output for output in made if output.name.startswith("x")],
        "counts": card_claims.count_text(table),
        "claims": card_claims.readable(table).to_dict("split"),
        "predictor": source.predictor_errors,
        "errors": errors[errors["model"] == sources.FITTED].to_dict("records") if len(errors) else [],
        "sharing": _sharing(folder),
        "live": _live(source),
    }
    page = environment.get_template("source.html.j2").render(content)
    return files.write_text(folder / PAGE, page + "\n")


def _live(source: Source) -> list[dict[str, Any]]:
    """Return the live comparisons that recorded the cards: their manifests, and values measured beside simulated."""
    found = {}
    for record in source.records:
        if (written := live_results.of_record(record.path)) is not None:
            table = live_results.beside(written.tables["comparison"])
            rows = [[cell(value) for value in row] for row in table.itertuples(index=False, name=None)]
            found[written.folder] = {**written.manifest, "heads": list(table.columns), "rows": rows}
    return list(found.values())


def _sharing(folder: Path) -> list[dict[str, Any]]:
    """Return Trade-off's changes in energy and JCT against systems that share no GPU, from the outputs of Fig. 6."""
    path = folder / "x04a_changes.csv"
    if not path.is_file():
        return []
    changes = pd.read_csv(path)
    own = changes[(changes["ours"] == "Trade-off") & changes["theirs"].isin(list(_SHARING))]
    shown = own[own["metric"].isin(list(_METRICS))]
    words = {"theirs": shown["theirs"].map(_SHARING), "metric": shown["metric"].map(_METRICS)}
    found: Any = shown.assign(**words).to_dict("records")
    return list(found)
