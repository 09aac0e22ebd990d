"""The process of a SQL task: `python -m controller.acceleration.running.tasks.process`, in the job's folder.

It reads query.json and the devices of the operators (`MILLRACE_OPERATOR_DEVICES`), prints the rows, tab-separated, and
writes ran.json.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pyarrow as pa

from controller.acceleration.running.tasks.running import run_query
from controller.acceleration.running.tasks.values import QUERY_FILE, RAN_FILE, Query, summary
from controller.apiserver.resources.operator_devices import VARIABLE
from dataplane.errors import MillraceError


def main() -> int:
    """Run the task; print errors as one line on stderr."""
    try:
        query = msgspec.json.decode(Path(QUERY_FILE).read_bytes(), type=Query)
        devices = msgspec.json.decode(os.environ.get(VARIABLE) or "{}", type=dict[str, str])
        table, ran = run_query(query, devices)
        for batch in table.to_batches():
            _print(batch)
        sys.stdout.flush()
        Path(RAN_FILE).write_bytes(msgspec.json.encode(ran))
        sys.stderr.write(f"{summary(ran)}\n")
    except (MillraceError, msgspec.DecodeError) as error:
        sys.stderr.write(f"millrace: {error}\n")
        return 1
    except (OSError, MemoryError, pa.ArrowException) as error:
        sys.stderr.write(f"millrace: {getattr(error, 'strerror', None) or str(error) or type(error).__name__}\n")
        return 1
    return 0


def _print(batch: pa.RecordBatch) -> None:
    columns = [column.to_pylist() for column in batch.columns]
    lines = ("\t".join(str(value) for value in row) for row in zip(*columns, strict=True))
    sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
