"""Spark's driver as a process: `python -m controller.acceleration.running.spark.process MASTER`.

It reads requests as lines of JSON from standard input, and answers each with a line on standard output; all that Spark
and Java write goes to standard error. When standard input ends it kills its process group: nothing outlives its parent.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Any

import pyarrow as pa
import pyarrow.ipc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from controller.acceleration.running.spark.problems import problem_of


def main() -> None:
    """Serve requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    session: SparkSession | None = None
    while True:
        request = requests.get()
        try:
            if session is None:
                session = SparkSession.builder.master(sys.argv[1]).appName("millrace").getOrCreate()
                answer: dict[str, Any] = {}
            else:
                answer = _answer(session, request)
        except Exception as error:  # noqa: BLE001 - each is said in one line; its trace is in the log
            sys.stderr.write(f"{error}\n")
            own = error.getMessage() if isinstance(error, PySparkException) else None
            answer = problem_of(f"{own or ''}\n{error}".strip() or repr(error))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _read(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        requests.put(json.loads(line))
    os.killpg(0, signal.SIGKILL)


def _answer(session: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    if "view" in request:
        frame = session.read.parquet(request["path"])
        if request["held"]:
            frame = frame.cache()
            frame.count()
        frame.createOrReplaceTempView(request["view"])
        return {}
    for number, view in enumerate(request["views"]):
        session.table(view).createOrReplaceTempView(f"input{number}")
    begun_s = time.perf_counter()
    table: pa.Table = session.sql(request["sql"]).toArrow()
    seconds = time.perf_counter() - begun_s
    if table.nbytes > request["most_bytes"]:
        return {"kind": "too-large", "problem": ""}
    with pa.OSFile(request["out"], "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return {"seconds": seconds}


if __name__ == "__main__":
    main()
