"""In-network aggregation: assignment of jobs to switches and their cells."""
