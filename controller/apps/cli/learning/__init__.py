"""`millrace scheduler train`, `evaluate` and `compare`: a learning scheduler in virtual time."""
