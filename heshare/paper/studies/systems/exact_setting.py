"""Base of the settings of these studies: trainings on emulated GPUs, with an exact predictor."""

from dataclasses import dataclass, fields

from heshare.prediction.oracle import DevicePredictor
from heshare.world.cluster import Cluster


@dataclass(frozen=True, slots=True)
class ExactSetting:
    """A setting on the emulated GPUs as calibrated, in which every policy predicts with the device model."""

    def labels(self) -> dict[str, object]:
        """Return every field as a column."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def make_predictor(self) -> DevicePredictor:
        """Return the device model as a predictor."""
        return DevicePredictor()

    def make_devices(self, cluster: Cluster) -> None:
        """Return None: the emulated GPUs as calibrated."""
