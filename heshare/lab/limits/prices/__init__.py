"""Prices and carbon of energy over time: what runs cost, and policies that wait for cheap energy."""
