"""Searches that stage 1 is compared with: NSGA-II, SPEA2 and MOEA/D by pymoo, and the same searches on whole arrays."""
