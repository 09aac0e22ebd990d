"""Status of a running controller: switches reconciled, routes in force, problems."""
