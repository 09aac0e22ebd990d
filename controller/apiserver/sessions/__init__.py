"""Container logs and commands: from the user through the API server to the pod's node."""
