"""SM clocks of GPUs set with as few rights as possible: the clock service and its client."""
