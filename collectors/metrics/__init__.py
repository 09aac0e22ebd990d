"""The network's state for Prometheus: the endpoint's `settings`, its `families`, and the `service`."""
