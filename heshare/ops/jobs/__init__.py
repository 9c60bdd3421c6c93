"""The file of jobs, the journal of a run of them, and the state that the journal adds up to."""
