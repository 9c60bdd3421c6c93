"""The page of a front: a plan is pointed at, and its timeline is shown."""
