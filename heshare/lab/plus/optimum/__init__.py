"""Exact Pareto fronts of small task sets and a proven lower bound on large ones."""
