"""Tracing of live packets, off the forwarding path: selection, limits and output."""
