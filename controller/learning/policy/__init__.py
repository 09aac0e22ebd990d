"""An agent in the live scheduler: `observing` shows it a pod and a cluster, `pods` is the policy."""
