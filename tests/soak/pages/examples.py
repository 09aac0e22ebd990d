"""Run a page's examples in the folder where it is started, and stay until SIGTERM: `PAGE BEFORE_LINE [feed]`.

With `feed` their `collector` is served meanwhile, where the command line looks for one.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from collectors.collector import Collector
from collectors.feed.server import FeedServer
from dataplane.running import stop_on_signals
from tests.docs.test_examples import Jobs, examples_of, run_console, run_python


def main(words: Sequence[str]) -> None:
    """Run those above a line, one after another, as the tests of pages do."""
    page, before = Path(words[0]), int(words[1])
    namespace: dict[str, Any] = {"__name__": f"docs.{page.stem}"}
    jobs: Jobs = []
    for example in examples_of(page.read_text(encoding="utf-8")):
        if example.line >= before:
            break
        if example.file is not None:
            Path(example.file).write_text(example.text, encoding="utf-8")
        elif example.language == "python":
            run_python(example, page, namespace)
        else:
            with pytest.MonkeyPatch.context() as patch:
                run_console(example, page, patch, jobs)
    asyncio.run(_stay(namespace["collector"] if "feed" in words else None))
    for value in (*namespace.values(), *jobs):
        if isinstance(value, subprocess.Popen) and value.poll() is None:
            value.kill()
            value.wait()


async def _stay(collector: Collector | None) -> None:
    stop = stop_on_signals()
    feed = None if collector is None else FeedServer(collector)
    if feed is not None:
        await feed.start()
    print("the examples have run", flush=True)
    await stop.wait()
    if feed is not None:
        await feed.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
