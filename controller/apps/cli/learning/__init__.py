"""`millrace scheduler train`, `evaluate` and `compare`: a scheduler that learns, in virtual time."""
