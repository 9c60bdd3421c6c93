"""Imports and compiled code that notebooks need; the server from which kernels are forked imports this module first."""

# ruff: noqa: F401 (imported so that kernels have them)
from contextlib import suppress

# An import that fails is reported by the notebook that needs it.
with suppress(Exception):
    import ipykernel.ipkernel
    import ipykernel.kernelapp

    import heshare.lab.plus.physics.physics_predictor
    import heshare.paper.explore.results
    import heshare.paper.figures.panels
    import heshare.paper.figures.timelines
    import heshare.paper.notebooks.notebook
    import heshare.paper.studies.optimality_gap
    import heshare.paper.studies.recorded_gpus
    import heshare.paper.studies.scaling
    import heshare.paper.studies.search_fronts
    import heshare.paper.studies.variants
    from heshare.lab.compile_all import load_all
    from heshare.policies.registry import policies

    # Loading plug-ins, compiled code and the predictor takes 3 to 5 s, which all notebooks share.
    policies()
    load_all()
