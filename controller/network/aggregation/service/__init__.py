"""The job service: workers meet by a job's name, are missed when silent, and come back; and its client."""
