"""Each number of the paper under each choice that it leaves open, and the worth of each mechanism (notebook 24)."""
