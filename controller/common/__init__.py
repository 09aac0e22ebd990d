"""Shared code of the controller: errors, HTTP, the console, OpenTelemetry."""
