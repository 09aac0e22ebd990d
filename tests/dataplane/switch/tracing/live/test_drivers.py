"""A switch as the process holds it explains packets, whichever pipeline forwards them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from dataplane.errors import ConfigError
from dataplane.nic.capture.pcap import PcapWriter
from dataplane.switch.arguments import PIPELINES, SwitchSettings, parse_arguments
from dataplane.switch.drivers import make_driver
from dataplane.switch.waiting import Waiter
from tests.dataplane.switch.compiled.queued_bench import own_program
from tests.waiting import wait_until

STEP_NS = 5_000_000


def settings(folder: Path, pipeline: str, wanted: str) -> SwitchSettings:
    with PcapWriter(folder / "in.pcap") as writer:
        for number in range(40):
            writer.write(bytes((0, 0, number % 4)) + bytes(20), number)
    words = ["--no-p4", "-i", f"2@{folder}/in.pcap,{folder}/out.pcap", "--pipeline", pipeline]
    return parse_arguments([*words, "--trace-filter", wanted, "--trace-file", f"{folder}/traces.txt"])


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_packets_that_are_chosen_are_explained(tmp_path: Path, pipeline: str) -> None:
    file = tmp_path / "traces.txt"
    with ExitStack() as stack:
        waiter = stack.enter_context(Waiter())
        driver = make_driver(stack, settings(tmp_path, pipeline, "order.argument==3 && ingress_port==2"))
        driver.commit(own_program("copies"))
        driver.start(waiter)

        def is_told() -> bool:
            now_ns = driver.control.now_ns()
            driver.step(waiter.wait(min(driver.next_due_ns() or now_ns + STEP_NS, now_ns + STEP_NS), now_ns))
            return file.read_text("utf-8").count("sent by port 2") == 10

        wait_until(is_told, "ten packets are explained, as many as a second may have")
    told = file.read_text("utf-8")
    assert told.count("extract order (bytes 0 to 2): ingress=0 egress=0 argument=3") == 10
    assert "not known exactly: its waiting time in the queue" in told


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_filter_that_is_none_for_the_first_program_is_an_error(tmp_path: Path, pipeline: str) -> None:
    with ExitStack() as stack:
        driver = make_driver(stack, settings(tmp_path, pipeline, "ipv4.ttl==3"))
        with pytest.raises(ConfigError, match=r"^--trace-filter: the program has no field 'ipv4\.ttl'$"):
            driver.commit(own_program("copies"))
