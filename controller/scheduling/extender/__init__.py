"""The scheduler extender of Kubernetes: the same filters and scores, asked over HTTP by a kube-scheduler."""
