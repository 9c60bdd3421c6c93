"""The interactive page of a front, with the timeline of each plan."""
