"""Demo of named content: sources of answers, no reads of replaced content, and copies that follow the readers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.demo.store.command import split
from controller.apps.demo.store.scenario import FRESHNESS_MS, StoreOutcome, StoreRun, roles
from dataplane.clock import NS_PER_MS
from dataplane.errors import FabricError
from dataplane.topology.file import load_topology

TOPOLOGY = load_topology("leaf-spine:spines=1,leaves=2,hosts=2")


@pytest.fixture(scope="module")
def outcome() -> StoreOutcome:
    return StoreRun(TOPOLOGY, None, 1).run()


def share(outcome: StoreOutcome, phase: int) -> float:
    reads = outcome.phases[phase].reads
    return len(split(reads)[0]) / len(reads)


def test_switch_answers_popular_names_sooner_and_follows_readers(
    outcome: StoreOutcome,
) -> None:
    assert share(outcome, 0) == 0
    assert share(outcome, 2) > 0.5  # the twelve most popular of sixty names get 66 % of reads
    assert share(outcome, 6) > 0.5
    hits, misses = split(outcome.phases[2].reads)
    assert max(read.took_ns for read in hits) < min(read.took_ns for read in misses)


def test_replaced_content_is_never_read_after_the_write(outcome: StoreOutcome) -> None:
    write = outcome.phases[3]
    assert {read.version for read in write.reads[1:]} == {2}
    assert not any(read.is_old for phase in outcome.phases for read in phase.reads)
    assert write.remark.startswith("version 2 after 1, acknowledged after ")


def test_a_copy_is_given_out_while_it_is_fresh_and_no_longer(outcome: StoreOutcome) -> None:
    reads = outcome.phases[4].reads
    assert [read.version for read in reads] == [1] * (len(reads) - 1) + [2]
    assert len(reads) > 1
    assert reads[-1].began_ns - reads[0].began_ns <= FRESHNESS_MS * NS_PER_MS
    assert not reads[-1].by_switch


def test_producer_writer_and_readers_are_three_hosts() -> None:
    assert roles(TOPOLOGY) == ("h4", "h3", ("h1", "h2"))
    with pytest.raises(FabricError, match="has no host 'x'"):
        roles(TOPOLOGY, "x")
    with pytest.raises(FabricError, match="needs three hosts: producer, writer and reader"):
        roles(load_topology("leaf-spine:spines=1,leaves=2,hosts=1"))


def test_the_command_prints_a_table_and_leaves_figures(tmp_path: Path) -> None:
    spec = ["--topology", "leaf-spine:spines=1,leaves=2,hosts=2", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["demo", "store", *spec], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "0 of " in done.output
    figures = json.loads((tmp_path / "store.json").read_text())
    assert (figures["copies"], figures["old_reads"], len(figures["phases"])) == (12, 0, 7)
    assert (tmp_path / "store.png").read_bytes().startswith(b"\x89PNG")
