"""`millrace telemetry`: one module a group of commands."""
