"""Running: the event loop over devices, the timeline of what happened, and the metrics of Eqs. 6 to 9."""
