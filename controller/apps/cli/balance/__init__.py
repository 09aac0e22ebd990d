"""`millrace balance`: transfer and compute load of units kept even by feedback."""
