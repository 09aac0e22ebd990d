"""Messages between workers and the job service."""
