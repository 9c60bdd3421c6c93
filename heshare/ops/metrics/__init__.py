"""What a run shows while it goes on: metrics for Prometheus, and a view for a terminal."""
