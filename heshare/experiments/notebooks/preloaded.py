"""Imports and compiled code that notebooks need; the server from which kernels are forked imports this module first."""

from contextlib import suppress

# An import that fails is reported by the notebook that needs it.
with suppress(Exception):
    import ipykernel.ipkernel
    import ipykernel.kernelapp  # noqa: F401

    import heshare.api
    import heshare.experiments.figures.panels
    import heshare.experiments.figures.timelines
    import heshare.experiments.notebooks.notebook
    import heshare.experiments.studies.optimality_gap
    import heshare.experiments.studies.recorded_gpus
    import heshare.experiments.studies.scaling
    import heshare.experiments.studies.search_fronts
    import heshare.experiments.studies.variants
    import heshare.plugins
    import heshare.plus.physics.few_shot  # noqa: F401
    from heshare.experiments.compile_all import compile_all

    # Loading compiled code and the predictor takes 3 to 5 s, which all notebooks share.
    compile_all()
