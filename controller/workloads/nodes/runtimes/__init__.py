"""OCI runtimes: podman by its REST service, and runc under conmon, behind one protocol."""
