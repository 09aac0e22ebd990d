"""Shared code of our gRPC services and their clients, in any package."""
