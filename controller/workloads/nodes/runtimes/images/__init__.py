"""Image references of users, and OCI layouts: read, checked by digest."""
