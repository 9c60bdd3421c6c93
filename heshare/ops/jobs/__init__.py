"""The file of jobs, the journal of a run of jobs, and the run's state and report from its journal."""
