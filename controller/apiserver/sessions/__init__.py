"""Logs of containers and commands run in them: from the user through the service access point to the pod's node."""
