"""What workers and the job service say to each other."""
