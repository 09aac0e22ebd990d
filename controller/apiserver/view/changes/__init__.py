"""Changes that users make from the page, each through the API and in its audit log."""
