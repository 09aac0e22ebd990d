"""Telemetry reports in, NetworkState out."""
