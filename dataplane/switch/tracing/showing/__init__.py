"""Output formats of traces: text for people, JSON for tools."""
