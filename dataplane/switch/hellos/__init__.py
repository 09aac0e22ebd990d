"""Hellos between neighbouring switches: BFD's sessions (RFC 5880, asynchronous mode) straight on Ethernet."""
