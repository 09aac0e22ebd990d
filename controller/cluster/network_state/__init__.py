"""The network's state for schedulers in other processes: one subscription, immutable cost maps, their age."""
