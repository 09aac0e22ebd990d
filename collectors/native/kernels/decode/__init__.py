"""Payloads to packets and hops."""
