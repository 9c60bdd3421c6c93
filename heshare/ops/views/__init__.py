"""What an operator sees of a run on real GPUs: status, top, metrics, and a dry run."""
