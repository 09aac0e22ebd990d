"""Probe tasks that experts write."""

from __future__ import annotations

import pytest

from controller.probing import expert
from controller.probing.library import KernelLibrary
from controller.probing.values import Link
from dataplane.errors import ConfigError

LIBRARY = KernelLibrary()
THREE_DGEMM = """\
millrace: 1
name: large-dense-solve
task_type: dense-solve
about: large dense direct solve
kernels:
  - {kernel: dgemm, repetitions: 3}
"""
LINKED = """\
millrace: 1
name: two
kernels:
  - {kernel: dgemm, sizes: {m: 64, n: 64, k: 64}}
  - {kernel: dgemm, sizes: {m: 32, n: 32, k: 32}, executions: 500}
  - {kernel: fft, name: last}
links:
  - {src: dgemm-1, dst: last}
"""


def test_an_experts_large_dense_direct_solve_is_three_dgemm() -> None:
    probe = expert.loads(THREE_DGEMM, LIBRARY)
    (use,) = probe.uses
    assert (use.kernel, use.repetitions, use.executions, use.sizes) == ("dgemm", 3, 3, LIBRARY.kernel("dgemm").sizes)
    assert (probe.category, probe.task_type, probe.target) == ("hpc", "dense-solve", "")


def test_an_expert_names_sizes_counts_and_links() -> None:
    probe = expert.loads(LINKED, LIBRARY)
    assert [use.name for use in probe.uses] == ["dgemm-1", "dgemm-2", "last"]
    assert dict(probe.uses[0].sizes) == {"m": 64, "n": 64, "k": 64}
    assert probe.uses[1].executions == 500
    assert probe.links == (Link("dgemm-1", "last"),)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dgemm", "dgem", r"p:6: kernels\[0\]\.kernel: no kernel dgem; did you mean dgemm or dgemv\?"),
        ("repetitions: 3", "version: 9", r"p:6: kernels\[0\]\.kernel: no version 9 of kernel dgemm; known: 1"),
        ("repetitions: 3", "sizes: {q: 1}", r"p:6: .*kernel dgemm has no size q; known: k, m, n"),
        ("repetitions: 3", "repetitions: 0", r"p:6: kernels\[0\]\.repetitions: expected `int` >= 1"),
        ("repetitions: 3", "device: fpga", r"p:6: .*has no implementation for fpga"),
        ("repetitions", "repetition", r"did you mean `repetitions`\?"),
        ("kernels:", "links: [{src: dgemm, dst: dgemm}]\nkernels:", r"p:5: links: .*data flows in a cycle: dgemm"),
        ("kernels:", "links: [{src: a, dst: dgemm}]\nkernels:", r"p:5: links\[0\]\.src: .*no use a"),
    ],
)
def test_errors_of_an_expert_name_line_and_key(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expert.loads(THREE_DGEMM.replace(old, new, 1), LIBRARY, file="p")


def test_empty_library_is_reported() -> None:
    with pytest.raises(ConfigError, match="the library is empty"):
        expert.loads(THREE_DGEMM, KernelLibrary(built_in=()))
