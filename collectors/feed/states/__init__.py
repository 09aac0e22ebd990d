"""States of the feed by number, and their changes."""
