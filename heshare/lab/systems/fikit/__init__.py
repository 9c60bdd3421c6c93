"""FIKIT (Wu, 2023)."""
