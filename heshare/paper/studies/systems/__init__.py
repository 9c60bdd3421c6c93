"""The published systems in the settings of their own papers: a module each, and one notebook, `09_systems`."""
