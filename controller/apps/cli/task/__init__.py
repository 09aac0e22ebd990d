"""`millrace task`."""
