"""What is told: tables, figures, claims, each with its provenance."""
