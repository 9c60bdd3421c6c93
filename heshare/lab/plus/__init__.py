"""HeShare+, the improved scheduler, offline and online; the policy Marginal; exact fronts and a proven lower bound."""
