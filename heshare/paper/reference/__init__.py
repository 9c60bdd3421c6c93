"""The artefact: the reference results, the comparison of a run with them, and the page for evaluators."""
