"""States of the feed: their changes, and the sums behind links that readers merge."""
