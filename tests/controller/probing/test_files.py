"""Files of probe tasks: strict, and round-tripped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controller.probing import files
from controller.probing.errors import ProbeError
from controller.probing.values import Implementation, KernelUse, Library, Link, ProbeTask, TargetRun
from dataplane.errors import ConfigError
from dataplane.topology.values import DeviceKind


def use(name: str, *, kernel: str = "dgemm", repetitions: int = 1, executions: int = 1) -> KernelUse:
    code = Implementation(DeviceKind.CPU, Library.NUMPY, "somewhere:dgemm", threads=True)
    return KernelUse(name, kernel, 1, (("n", 256),), repetitions, executions, code, 1e-12, scale=2.5, splits="n")


PROBE = ProbeTask(
    "solve",
    "hpc",
    (use("k1", repetitions=3, executions=3000), use("k2", repetitions=2, executions=2000), use("k3")),
    (Link("k1", "k3"), Link("k2", "k3")),
    task_type="dense-solve",
    target="solver",
    unmatched=("plot",),
    share_matched=0.97,
    seed=7,
    reference=TargetRun(61.5, (("k1", 0.01), ("k2", 0.0075), ("k3", 0.02))),
)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_file_is_read_back_as_the_same_value(as_json: bool) -> None:
    assert files.loads(files.dumps(PROBE, as_json=as_json)) == PROBE


@pytest.mark.parametrize("as_json", [False, True])
def test_a_file_on_disk_is_read_back_as_the_same_value(tmp_path: Path, as_json: bool) -> None:
    path = tmp_path / ("p.json" if as_json else "p.yaml")
    path.write_text(files.dumps(PROBE, as_json=as_json))
    assert files.load(path) == PROBE


def test_the_resource_holds_the_same_value() -> None:
    assert files.of_spec("solve", files.to_spec(PROBE)) == PROBE


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dgemm", "DGEMM", "uses[0].kernel"),
        ("k3", "K3", "uses[2].name"),
        ("repetitions", "repetition", "did you mean `repetitions`"),
        ("share_matched", "share_matchet", "did you mean `share_matched`"),
    ],
)
def test_errors_name_line_and_key(old: str, new: str, message: str, as_json: bool) -> None:
    text = files.dumps(PROBE, as_json=as_json).replace(old, new)
    with pytest.raises(ConfigError) as refused:
        files.loads(text, file="p")
    assert message in str(refused.value)
    assert refused.value.line is not None


@pytest.mark.parametrize(("src", "dst", "message"), [("k3", "k1", "cycle"), ("k1", "k9", "no use k9")])
def test_links_that_cannot_be_are_refused(src: str, dst: str, message: str) -> None:
    with pytest.raises(ProbeError, match=message):
        ProbeTask("p", "hpc", PROBE.uses, (*PROBE.links, Link(src, dst)))


@pytest.mark.parametrize(
    "kernels_s", [(("k1", 0.01),), (("k1", 0.0), ("k2", 1.0), ("k3", 1.0)), (("k2", 1.0), ("k1", 1.0))]
)
def test_a_reference_is_of_all_uses_and_of_times(kernels_s: tuple[tuple[str, float], ...]) -> None:
    with pytest.raises(ProbeError, match=r"reference|kernels_s|takes 0\.0 s|sorted by name"):
        replace(PROBE, reference=TargetRun(61.5, kernels_s))
