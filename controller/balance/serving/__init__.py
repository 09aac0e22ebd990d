"""The management service of unit pools: what holders report becomes what they want, and that who has how many."""
