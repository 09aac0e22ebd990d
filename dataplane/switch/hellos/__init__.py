"""Hellos between neighbouring switches: BFD's sessions (RFC 5880, asynchronous mode) directly on Ethernet."""
