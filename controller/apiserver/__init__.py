"""The API server: what schedulers keep as resources over HTTP, its storage, its client, manifests, its agents."""
