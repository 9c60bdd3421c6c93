"""Studies, figures, claims, notebooks, the page of results and the reference results."""
