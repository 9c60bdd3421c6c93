"""What MISO and its baselines need: the search over partitions, static partitions, equal shares under MPS."""

from heshare.policies.partitioned import static

__all__ = ["static"]
