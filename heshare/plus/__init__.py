"""HeShare+: the improved scheduler, offline, online and by marginal cost; exact fronts and a proven lower bound."""
