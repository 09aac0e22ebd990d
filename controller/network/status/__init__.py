"""What a running controller says of itself: switches reconciled, routes in force, problems."""
