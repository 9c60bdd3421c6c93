"""What happened: the event loop over devices, and the timeline from which every metric is computed."""
