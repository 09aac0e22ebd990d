"""The skeleton of daemons, and notifications to the service manager."""

from dataplane.daemon.skeleton import Daemon, Lifecycle, Reload, Say, ready_line

__all__ = ["Daemon", "Lifecycle", "Reload", "Say", "ready_line"]
