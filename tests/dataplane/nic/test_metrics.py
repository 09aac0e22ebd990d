"""Prometheus's view of a Nic: the values of its statistics, under bounded labels, and over HTTP."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dataplane.errors import PortError
from dataplane.nic import Drop, FlowRule, Nic, NicSettings, ToConsumers, memory_pair, open_nic
from dataplane.nic.metrics import metrics_text, serve_metrics
from tests.dataplane.nic.test_nic import udp

Labels = frozenset[tuple[str, str]]


@pytest.fixture
def nic() -> Iterator[Nic]:
    near, far = memory_pair(("near", "far"))
    with far, open_nic(near, NicSettings(threads=0)) as opened:
        consumer = opened.add_consumer("reports", buffers={128: 4})
        opened.classifier.insert(FlowRule("reports", {"udp.dst": 1}, ToConsumers("reports")))
        opened.classifier.set_default(Drop())
        far.send([udp(1)] * 6 + [udp(2)] * 3)
        opened.send([udp(5)])
        opened.step(1)
        opened.step(2)
        held = consumer.receive(3)
        yield opened
        for packet in held:
            packet.release()


def samples(text: str) -> dict[str, dict[Labels, float]]:
    values: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert labels not in values.setdefault(sample.name, {})
            values[sample.name][labels] = sample.value
    return values


def label(**values: str) -> Labels:
    return frozenset({"interface": "near", **values}.items())


def test_metrics_are_the_statistics(nic: Nic) -> None:
    values = samples(nic.metrics())
    assert all(name.startswith("millrace_nic_") for name in values)
    assert values["millrace_nic_received_packets_total"] == {label(queue="0"): 9}
    assert values["millrace_nic_received_bytes_total"] == {label(queue="0"): 9 * 60}
    assert values["millrace_nic_sent_packets_total"] == {label(queue="0"): 1}
    assert values["millrace_nic_handed_out_packets_total"] == {label(thread="0"): 4}
    assert values["millrace_nic_polls_total"] == {label(thread="0"): 2}
    assert values["millrace_nic_waiting_packets"] == {label(consumer="reports"): 1}
    assert values["millrace_nic_lent_packets"] == {label(consumer="reports"): 3}
    assert values["millrace_nic_free_buffers"] == {label(consumer="reports", size_bytes="128"): 0}
    assert values["millrace_nic_unsent_packets"] == {label(producer="nic.send"): 0}
    dropped = values["millrace_nic_dropped_packets_total"]
    assert {dict(labels)["reason"]: count for labels, count in dropped.items()} == nic.read_statistics().dropped
    received = sum(values["millrace_nic_received_packets_total"].values())
    parts = ("handed_out", "called", "dropped")
    assert received == sum(sum(values[f"millrace_nic_{part}_packets_total"].values()) for part in parts)


def test_a_consumer_that_left_and_its_successor_are_one_series(nic: Nic) -> None:
    (before,) = samples(nic.metrics())["millrace_nic_lent_packets"].values()
    nic.add_consumer("other")
    assert before == 3
    assert set(samples(nic.metrics())["millrace_nic_lent_packets"]) == {
        label(consumer="reports"),
        label(consumer="other"),
    }


def test_several_nics_are_told_apart_by_their_interface(nic: Nic) -> None:
    near, far = memory_pair(("second", "far"))
    with far, open_nic(near, NicSettings(threads=0)) as second:
        values = samples(metrics_text(nic.read_statistics, second.read_statistics))
    interfaces = {dict(labels)["interface"] for labels in values["millrace_nic_polls_total"]}
    assert interfaces == {"near", "second"}


def test_metrics_are_served_until_closed(nic: Nic) -> None:
    with serve_metrics(0, nic.read_statistics) as server:
        address = f"http://127.0.0.1:{server.port}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            values = samples(answer.read().decode())
    assert values["millrace_nic_received_packets_total"] == {label(queue="0"): 9}
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) != 0


def test_a_tcp_port_in_use_is_one_line(nic: Nic) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortError, match=rf"^metrics cannot be served at 127.0.0.1:{port}: "):
            serve_metrics(port, nic.read_statistics)
