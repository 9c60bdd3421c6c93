"""Records of what ran: commit, run, sidecar files of outputs."""
