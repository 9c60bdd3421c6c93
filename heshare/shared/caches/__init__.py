"""Caches on disk: folders for what can be computed again, and arrays that are computed once on a machine."""
