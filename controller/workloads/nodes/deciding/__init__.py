"""Decisions about a node's pods: next steps, reported statuses, and orders to a runtime; all of it pure."""
