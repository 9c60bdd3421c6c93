"""The fit of the emulated GPUs to public measurements."""
