"""The committed build of the page matches its sources, and a rebuild gives the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import page_build
from tests.page_build import WEB, PageBuildError, build_page, check_build, digest_sources, install_packages, main


def test_the_committed_build_is_up_to_date() -> None:
    check_build()
    main([])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of sources and build, without packages."""
    shutil.copytree(WEB, tmp_path / "web", ignore=shutil.ignore_patterns("node_modules"))
    return tmp_path / "web"


@pytest.mark.parametrize("changed", ["src/App.svelte", "package.json", "build/index.html", "build/licenses.txt"])
def test_a_change_on_one_side_is_named(tree: Path, changed: str) -> None:
    with (tree / changed).open("a") as file:
        file.write(" ")
    with pytest.raises(PageBuildError, match=r"changed since.*make web") as raised:
        check_build(tree)
    assert "\n" not in str(raised.value)
    assert (changed if changed.startswith("build") else str(tree)) in str(raised.value)


def test_a_file_too_many_or_too_few_is_named(tree: Path) -> None:
    (tree / "build" / "other.js").write_text("")
    with pytest.raises(PageBuildError, match=r"other\.js"):
        check_build(tree)
    (tree / "build" / "other.js").unlink()
    (tree / "build" / page_build.DIGESTS).unlink()
    with pytest.raises(PageBuildError, match=r"page\.sha256: No such file"):
        check_build(tree)


def test_tests_of_the_page_are_no_source(tree: Path) -> None:
    before = digest_sources(tree)
    (tree / "tests" / "other.test.ts").write_text("")
    assert digest_sources(tree) == before


@pytest.mark.slow
def test_a_rebuild_gives_the_same_bytes(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not on the PATH: the page is not built again")
    try:
        install_packages()
    except PageBuildError as error:
        pytest.skip(f"the page's packages cannot be installed: {error}")
    build_page(tmp_path / "build")
    assert (tmp_path / "build" / page_build.DIGESTS).read_text() == (WEB / "build" / page_build.DIGESTS).read_text()
    page_build.run_tests()
