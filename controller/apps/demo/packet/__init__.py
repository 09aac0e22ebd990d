"""`millrace demo int`: one packet with in-band telemetry, its headers on every cable, and the reports of it."""
