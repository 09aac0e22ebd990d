"""Headers: bytes to values and back, one header a file."""
