"""Runs of any length: checkpoints, totals in place of a timeline, and timelines that are streamed to files."""
