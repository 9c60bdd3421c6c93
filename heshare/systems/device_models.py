"""Registration of the device models that go beyond the paper: training, time slices, MIG, priorities, set predictions.

Importing this module registers them with the catalogue, the device model and the predictors.
"""

from heshare.systems.fikit import priority_sharing
from heshare.systems.miso import mig
from heshare.systems.shared import set_table, time_slicing, training, training_step

__all__ = ["MODULES"]

MODULES = (training, training_step, time_slicing, mig, priority_sharing, set_table)
"""The modules that register."""
