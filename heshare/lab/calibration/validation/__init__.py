"""Errors of the device model on measurements left out of its fit, and how often its stated intervals hold."""
