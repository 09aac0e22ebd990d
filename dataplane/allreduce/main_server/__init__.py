"""The main server of a job: it distributes values to the workers, and takes what they deliver."""
