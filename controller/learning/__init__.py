"""A scheduler that learns while it decides, of a multi-engine system on a hybrid memory pool."""
