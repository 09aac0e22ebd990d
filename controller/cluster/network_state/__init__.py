"""The network's state as deciders in other processes follow it: one subscription, immutable cost maps, their age."""
