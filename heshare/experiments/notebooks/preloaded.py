"""Imports that notebooks need; the server from which kernels are forked imports this module in advance."""

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
    from heshare.prediction.forest import load_forest_predictor

    # The predictor of the shipped profiles is trained once for all notebooks.
    load_forest_predictor()
