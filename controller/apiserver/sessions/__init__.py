"""Logs of containers and commands run in them: from the user through the API server to the pod's node."""
