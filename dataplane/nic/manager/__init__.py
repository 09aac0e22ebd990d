"""The packet manager: which consumer gets a packet, and what consumers and producers do with theirs."""
