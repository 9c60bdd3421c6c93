"""What notebooks need, imported once by the server that kernels are forked from; importing this is all it is for."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

NAMES = (
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "heshare.api",
    "heshare.policies.table1",
    "heshare.prediction.fewshot",
    "heshare.reporting.equals",
    "heshare.reporting.fronts",
    "heshare.reporting.mixes",
    "heshare.reporting.notebook",
    "heshare.reporting.optimum",
    "heshare.reporting.panels",
    "heshare.reporting.parts",
    "heshare.reporting.recorded",
    "heshare.reporting.timelines",
)

for _name in NAMES:
    # What cannot be imported is told by the notebook that needs it.
    with suppress(Exception):
        import_module(_name)
with suppress(Exception):
    import_module("heshare.prediction.forest").load_predictor()
"""The predictor of the shipped profiles is trained once for all."""
