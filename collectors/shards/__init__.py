"""Several collectors that share a fabric's switches: leases, assignment, and readers that merge their states."""
