"""Commands of the cluster: the API server, its nodes, centres, projects and schedulers."""
