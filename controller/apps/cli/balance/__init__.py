"""`millrace balance`: feedback control that keeps units' transfer and compute load even."""
