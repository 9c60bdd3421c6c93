"""Rivals of the search: NSGA-II, SPEA2 and MOEA/D by pymoo, and the same searches on whole arrays."""
