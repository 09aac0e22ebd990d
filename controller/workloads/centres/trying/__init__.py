"""Which probe kernels run on a centre's units: those that are tried, the jobs that try them, what such a job runs."""
