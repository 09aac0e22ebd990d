"""`millrace probe kernels serve`: server side of network-pull."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controller.apps.cli.shared.amounts import in_bytes, in_seconds


def serve(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to serve at; port 0: any free port.")],
    secret_file: Annotated[
        Path, typer.Option("--secret-file", metavar="FILE", help="Created, readable only by you; clients need it.")
    ],
    for_s: Annotated[float, typer.Option("--for", parser=in_seconds(1, 86_400), help="Stop after this long.")] = 600.0,
    most_bytes: Annotated[int, typer.Option(parser=in_bytes(1, 1 << 40), help="Limit per connection.")] = 1 << 30,
) -> None:
    """Serve bytes to clients with the secret from a new file, until interrupted or out of time."""
    import os  # noqa: PLC0415
    import secrets  # noqa: PLC0415
    import threading  # noqa: PLC0415

    from controller.apps.cli.shared.common import ready  # noqa: PLC0415
    from controller.probing.errors import ProbeKernelError  # noqa: PLC0415
    from controller.probing.kernels.transfers import network, pull  # noqa: PLC0415

    host, port = network.address_of(listen, least_port=0)
    try:
        listening = network.listening(host, port)
    except OSError as error:
        raise ProbeKernelError(f"--listen {listen}: {error.strerror or error}") from None
    secret = secrets.token_bytes(pull.SECRET_BYTES)
    try:
        # O_EXCL neither overwrites a file nor follows a link.
        number = os.open(secret_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ProbeKernelError(f"secret file {secret_file}: {error.strerror}") from None
    with os.fdopen(number, "w", encoding="ascii") as out:
        out.write(secret.hex())
    counters = pull.Counters()
    try:
        ready("probe kernels")(f"bytes at {host}:{listening.getsockname()[1]} for {for_s:g} s")
        pull.serve(listening, secret, pull.Limits(most_bytes=most_bytes, for_s=for_s), threading.Event(), counters)
    except KeyboardInterrupt:
        pass
    finally:
        secret_file.unlink(missing_ok=True)
    typer.echo(
        f"{counters.served} connections served {counters.sent_bytes} bytes; {counters.refused} refused,"
        f" {counters.too_many} too many, {counters.broken} broken"
    )
