"""Tables of telemetry: what INT does to which flows, and what switches report."""
