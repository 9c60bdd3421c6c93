"""Energy of each tenant of a shared GPU, where only the energy of the whole GPU is measured."""
