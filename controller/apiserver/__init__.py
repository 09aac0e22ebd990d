"""The API server: resources served over HTTP, with their storage, client, manifests and agents."""
