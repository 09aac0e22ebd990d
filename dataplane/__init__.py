"""Millrace's lowest layer: wire formats, P4 programs, the switch, and the fabrics that it runs in."""
