"""A process that polls a device's queues, as tests start it in a namespace: counts what comes, and obeys its node.

`python -m tests.controller.workloads.nodes.nic.poller DEVICE [QUEUES]` writes "polling", and at the end of its input
the number of frames that consumers got.
"""

from __future__ import annotations

import sys

from dataplane.nic import FlowRule, Mode, NicSettings, ToConsumers, open_nic
from dataplane.nic.managed.polled import NicQueues
from dataplane.nic.managed.reporter import QueueReporter


def main(device: str, queues: int) -> None:
    settings = NicSettings(queues=queues, mode=Mode.WAITING)
    with open_nic(device, settings) as nic:
        consumer = nic.add_consumer("all", buffers=65_536, queue_packets=65_536)
        nic.classifier.insert(FlowRule("all", {"eth.type": 0x88B5}, ToConsumers("all")))
        with QueueReporter("poller", NicQueues(nic)):
            print("polling", flush=True)
            sys.stdin.read()
        print(sum(1 for _ in iter(lambda: len(consumer.receive(1)), 0)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
