"""Recording profiles of real GPUs within a time budget, with kernel traces and a journal."""
