"""`millrace balance serve`: the management service of unit pools."""

from __future__ import annotations

from controller.apps.cli.shared.common import SettingsFile, run_daemon


def serve(settings: SettingsFile) -> None:
    """Run the management service: units of pools move from holders that free them to those that ask."""
    from controller.balance import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)
