"""`millrace demo int`: one packet with in-band telemetry, its headers on every cable, and its reports."""
