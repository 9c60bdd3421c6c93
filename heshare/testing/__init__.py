"""Test kits for a new device or policy (subclass its contract and provide a fixture), and a toy device."""
