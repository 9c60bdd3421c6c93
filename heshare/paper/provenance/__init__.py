"""Provenance: commit, record of a run, sidecar files of outputs."""
