"""The paper's claims: measured values, verdicts and reasons."""
