"""Images as users name them, and OCI layouts: read, checked by digest."""
