"""The policy interface, the registry, and the policies of the paper: Random, Sched-only and HeShare's three."""
