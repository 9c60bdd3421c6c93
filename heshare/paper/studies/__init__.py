"""Studies behind the figures: one module a question."""
