"""PWR with FGD (Lettich et al., CCGrid 2025)."""
