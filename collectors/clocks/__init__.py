"""Clocks of switches: offsets and drifts, estimated from the stamps of packets that cross links both ways."""
