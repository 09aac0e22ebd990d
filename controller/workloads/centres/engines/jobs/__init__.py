"""What engines share: the program beside each job, the folders that tell of jobs, what is known of a cluster's jobs."""
