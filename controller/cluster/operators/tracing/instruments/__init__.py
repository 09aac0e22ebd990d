"""What makes a running program tell what it does: names replaced while it is traced, and hooks of its libraries."""
