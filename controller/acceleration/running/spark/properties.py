"""Settings of Spark's processes: files in a folder that only its user can read, never options on a command line.

The secret of a cluster is in spark-defaults.conf; Spark itself passes it on to executors in their environment.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from controller.acceleration.running.errors import RunError
from dataplane.given import SECRET_BYTES, read_given_text

FILE: Final = "spark-defaults.conf"
SECRET: Final = "spark.authenticate.secret"  # noqa: S105 - a key's name
_OTHERS: Final = 0o077
_SETTING: Final = re.compile(r"(spark\.[\w.]+)\s*[\s=]\s*(\S.*)")
_SECRETS: Final = ("secret", "password", "token")
_LOG: Final = """rootLogger.level = warn
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""
STATEMENTS: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    # A constant of a statement is not a reference to a setting.
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.crossJoin.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.collation.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # Plans with literals of a statement are not logged.
    "spark.sql.maxPlanStringLength": "0",
}
"""Settings that the results of statements depend on, and those that keep statements out of logs."""
QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.master.rest.enabled": "false",
    "spark.metrics.staticSources.enabled": "false",
}


def new_secret() -> str:
    """Return a random secret of 32 bytes, in hexadecimal digits."""
    return secrets.token_hex(32)


def authenticated(secret: str) -> dict[str, str]:
    """Return the settings of authenticated and encrypted connections."""
    return {"spark.authenticate": "true", SECRET: secret, "spark.network.crypto.enabled": "true"}


def closed_pages() -> dict[str, str]:
    """Return the settings by which web pages of master and worker, which cannot be turned off, want an unknown key."""
    name = "org.apache.spark.ui.JWSFilter"
    key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode("ascii")
    return {"spark.ui.filters": name, f"spark.{name}.param.secretKey": key}


def environment(home: Path, java: Path, folder: Path, address: str) -> dict[str, str]:
    """Return the environment of a process of Spark: nothing of the caller's but where programs are."""
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG", "LC_ALL", "TZ"}}
    return kept | {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": address,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "512m",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def write(folder: Path, settings: Mapping[str, str]) -> None:
    """Write the settings of Spark's processes, and of their logs, into a new folder.

    Warnings and the words of master and worker are logged; what else Spark says may have constants of a statement.
    """
    folder.mkdir(mode=0o700)
    for name, text in (
        (FILE, "".join(f"{key} {value}\n" for key, value in settings.items())),
        ("log4j2.properties", _LOG),
    ):
        with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(text)


def read(file: Path) -> dict[str, str]:
    """Return a user's settings of a cluster, a file in the form of spark-defaults.conf; RunError names a bad one."""
    try:
        text = read_given_text(file, SECRET_BYTES)
        is_open = bool(file.stat().st_mode & _OTHERS)
    except (OSError, ValueError) as error:
        raise RunError(f"Spark's settings {file}: {getattr(error, 'strerror', None) or error}") from None
    settings = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        setting = _SETTING.fullmatch(line.strip())
        if setting is None:
            raise RunError(f"Spark's settings {file}, line {number}: not a setting and its value")
        settings[setting[1]] = setting[2]
    if is_open and any(word in key.lower() for key in settings for word in _SECRETS):
        raise RunError(f"Spark's settings {file} have a secret and are accessible to others; chmod 600 {file}")
    return settings
