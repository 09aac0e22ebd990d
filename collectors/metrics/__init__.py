"""The network's state for Prometheus: `settings` where it is served, `families` what, `service` how."""
