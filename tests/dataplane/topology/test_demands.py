from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.errors import ConfigError, FabricError
from dataplane.topology.demands import DemandMatrix, dumps_demands, load_demands, load_yates, loads_demands
from dataplane.topology.file import load_topology, topologies_folder

TEXT = "# three nodes\nbit/s,a,b,c\na,0,1,2\nb,3,0,4\n\nc,5,6,0\n"
YATES = Path(__file__).parents[4] / "shared" / "data" / "yates_abilene_hourly.txt"


def test_a_matrix_reads_as_it_stands() -> None:
    matrix = loads_demands(TEXT)
    assert matrix.nodes == ("a", "b", "c")
    assert matrix.rate_bps("b", "c") == 4
    assert matrix.total_bps == 21
    assert list(matrix.pairs())[:2] == [("a", "b", 1), ("a", "c", 2)]
    assert loads_demands(dumps_demands(matrix)) == matrix


def test_demands_of_zero_are_no_pairs() -> None:
    assert list(DemandMatrix(("a", "b"), ((0, 0), (7, 0))).pairs()) == [("b", "a", 7)]


def test_demands_shrink_with_their_topology() -> None:
    assert loads_demands("bit/s,a,b\na,0,1500\nb,2400,0\n").divided(1000).rates_bps == ((0, 2), (2, 0))


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("", 1, None),
        ("a,b\n", 1, None),
        ("bit/s\n", 1, None),
        ("bit/s,a,a\na,0,1\na,1,0\n", 1, "a"),
        ("bit/s,a,\na,0,1\n,1,0\n", 1, ""),
        ("bit/s,a,b\na,0,1\n", 2, None),
        ("bit/s,a,b\nb,0,1\na,1,0\n", 2, None),
        ("bit/s,a,b\na,0,1,2\nb,1,0\n", 2, "a"),
        ("bit/s,a,b\na,0,1\nb,-1,0\n", 3, "a"),
        ("bit/s,a,b\na,0,1.5\nb,1,0\n", 2, "b"),
        ("bit/s,a,b\na,0,1\nb,1e3,0\n", 3, "a"),
        ("bit/s,a,b\na,1,1\nb,1,0\n", 2, "a"),
        ("bit/s,a,b\na,0,9999999999999999\nb,1,0\n", 2, "b"),
        ('bit/s,a,b\na,0,"1\nb,1,0\n', 3, None),
        ("bit/s,a,z\na,0,1\nz,1,0\n", 1, "z"),
    ],
)
def test_bad_matrices_name_the_place(text: str, line: int, key: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        loads_demands(text, known={"a", "b"}, file="m.csv")
    assert (caught.value.file, caught.value.line, caught.value.key) == ("m.csv", line, key)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.csv"):
        load_demands(tmp_path / "none.csv")
    bad = tmp_path / "bad.csv"
    bad.write_bytes(b"bit/s,\xff\n")
    with pytest.raises(ConfigError, match=r"bad\.csv.*UTF-8"):
        load_demands(bad)


@settings(deadline=None)
@given(st.one_of(st.text(), st.text('bit/s,a0123\n" #')))
def test_any_text_gives_a_matrix_or_a_config_error(text: str) -> None:
    for candidate in (text, "bit/s,a,b\n" + text):
        matrix = refused_or(loads_demands, candidate)
        assert matrix is None or loads_demands(dumps_demands(matrix)) == matrix


def refused_or(load: Callable[[str], DemandMatrix], text: str) -> DemandMatrix | None:
    try:
        return load(text)
    except ConfigError:
        return None


@pytest.mark.parametrize(
    ("nodes", "rates"),
    [(("a", "a"), ((0, 1), (1, 0))), (("a", "b"), ((0, 1),)), (("a", "b"), ((0, -1), (1, 0))), (("a",), ((1,),))],
)
def test_a_matrix_is_checked_when_it_is_made(nodes: tuple[str, ...], rates: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(FabricError):
        DemandMatrix(nodes, rates)


def test_yates_lines(tmp_path: Path) -> None:
    path = tmp_path / "hourly.txt"
    path.write_text("9.0 1.4 2.6 0\n\n0 3 4 0\n")
    first, second = load_yates(path, ("a", "b"))
    assert first.rates_bps == ((0, 1), (3, 0))
    assert second.rates_bps == ((0, 3), (4, 0))
    assert load_yates(path, ("a", "b"), limit=1) == (first,)


@pytest.mark.parametrize("line", ["1 2 3", "1 2 3 x", "1 2 nan 4", "1 -2 3 4", "1 inf 3 4", "1 1e300 3 4"])
def test_bad_yates_lines_name_the_place(line: str, tmp_path: Path) -> None:
    path = tmp_path / "hourly.txt"
    path.write_text(f"0 1 2 0\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        load_yates(path, ("a", "b"))
    assert (caught.value.file, caught.value.line) == (str(path), 2)


def test_an_empty_yates_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "hourly.txt"
    path.write_text("\n")
    with pytest.raises(ConfigError, match="no matrix"):
        load_yates(path, ("a", "b"))


def test_our_own_matrix_fits_abilene() -> None:
    hosts = load_topology("abilene").host
    matrix = load_demands(topologies_folder() / "abilene-demands.csv", known=hosts)
    assert set(matrix.nodes) == set(hosts) - {"collector"}
    assert matrix.total_bps == pytest.approx(26e9, rel=1e-3)
    assert all(matrix.rate_bps(a, b) == matrix.rate_bps(b, a) > 0 for a in matrix.nodes for b in matrix.nodes if a != b)


def test_the_real_matrices_fit_abilene() -> None:
    if not YATES.exists():
        pytest.skip(f"{YATES} is not here")
    hosts = tuple(host.name for host in load_topology("abilene").hosts if host.name != "collector")
    matrices = load_yates(YATES, hosts)
    assert len(matrices) == 200
    assert matrices[0].rate_bps("h-atlam5", "h-atla") == 9467
    assert matrices[0].rate_bps("h-atla", "h-atlam5") == 5747
    assert all(matrix.total_bps > 0 for matrix in matrices)
