"""Studies of power limits and energy prices."""
