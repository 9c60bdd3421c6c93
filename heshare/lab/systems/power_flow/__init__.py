"""PowerFlow (Gu et al., 2023)."""
