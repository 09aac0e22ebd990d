"""What all of the controller uses: errors, HTTP, the console, OpenTelemetry."""
