"""Main servers of jobs, which distribute values to workers and take what they deliver."""
