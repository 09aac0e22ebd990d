"""The service access point: all that schedulers keep, as resources over HTTP; its server and its client."""
