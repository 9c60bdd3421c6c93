"""MISO (Li et al., SoCC 2022)."""
