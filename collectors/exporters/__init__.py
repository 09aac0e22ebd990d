"""State from devices that speak no P4: sFlow agents export counters and samples, which complete the links' state."""
