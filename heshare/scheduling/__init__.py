"""HeShare's two stages: energy-aware task scheduling (Section III-B) and GPU sharing optimization (Section III-C)."""
