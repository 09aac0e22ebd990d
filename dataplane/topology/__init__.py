"""What a network is: switches, hosts and links as values, the files that describe it, and families that make it."""
