"""Shared by the node manager and the centre agent: state folder, server time, access to the API."""
