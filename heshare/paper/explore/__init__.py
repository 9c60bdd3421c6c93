"""What `hs.plan`, `hs.optimise` and `hs.run` return: results that can be drawn, and the page of a front."""
