"""The artefact: the reference results, what a fresh run is compared with, and the page for its evaluators."""
