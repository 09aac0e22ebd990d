"""Missing or old Java, missing pyspark, settings of clusters, and errors of Spark: one line each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.spark import properties, software
from controller.acceleration.running.spark.problems import problem_of
from controller.acceleration.running.spark.sessions import SparkSession
from controller.acceleration.running.spark.standalone import SparkCluster


def java(folder: Path, version: str) -> Path:
    """Make a Java of a version, as its `release` file says it."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
    return folder


def test_missing_java_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError) as caught:
        software.java_home()
    assert str(caught.value) == (
        "running on Spark needs Java 17: no java on the PATH: apt install openjdk-17-jre-headless"
    )


@pytest.mark.parametrize(("version", "spoken"), [("11.0.22", "11"), ("1.8.0_402", "8"), ("?", "0")])
def test_old_java_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, spoken: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "java", version)))
    with pytest.raises(RunError, match=f"is Java {spoken}: apt install openjdk-17-jre-headless"):
        software.java_home()


@pytest.mark.parametrize("version", ["17.0.15", "21", "17.0.21.1"])
def test_java_17_and_newer_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    home = java(tmp_path / "java", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert software.java_home() == home


@pytest.mark.parametrize("part", [lambda: SparkCluster(1), lambda: SparkSession("local[1]")])
def test_missing_pyspark_names_the_extra(monkeypatch: pytest.MonkeyPatch, part: object) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(RunError) as caught, part():  # type: ignore[operator]
        pytest.fail("it started")
    assert str(caught.value) == "running on Spark needs pyspark: pip install 'millrace-net[spark]'"


def test_settings_of_a_cluster_are_read(tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.write_text("# a cluster\nspark.authenticate true\n\nspark.authenticate.secret = x=y\n")
    file.chmod(0o600)
    assert properties.read(file) == {"spark.authenticate": "true", "spark.authenticate.secret": "x=y"}


@pytest.mark.parametrize(
    ("text", "mode", "line"),
    [
        ("spark.authenticate.secret x\n", 0o644, "are accessible to others; chmod 600"),
        ("spark.authenticate\n", 0o600, "line 1: not a setting and its value"),
        ("\nfoo bar\n", 0o600, "line 2: not a setting and its value"),
    ],
)
def test_bad_settings_name_file_and_line(tmp_path: Path, text: str, mode: int, line: str) -> None:
    file = tmp_path / "spark.conf"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(RunError) as caught:
        properties.read(file)
    assert str(file) in str(caught.value)
    assert line in str(caught.value)


def test_settings_are_written_for_their_user_alone(tmp_path: Path) -> None:
    properties.write(tmp_path / "conf", properties.authenticated("s3cret"))
    assert (tmp_path / "conf").stat().st_mode & 0o777 == 0o700
    file = tmp_path / "conf" / properties.FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert "spark.authenticate.secret s3cret\n" in file.read_text()
    assert "s3cret" not in str(properties.environment(tmp_path, tmp_path, tmp_path, "127.0.0.1"))


def test_environment_has_nothing_of_the_caller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLRACE_TOKEN", "t0ken")
    assert "MILLRACE_TOKEN" not in properties.environment(tmp_path, tmp_path, tmp_path, "127.0.0.1")


@pytest.mark.parametrize("master", ["yarn", "spark://", "spark://host:no", "mesos://x:1", ""])
def test_a_master_of_another_form_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str) -> None:
    monkeypatch.setattr(software, "spark_home", lambda: tmp_path)
    monkeypatch.setattr(software, "java_home", lambda: tmp_path)
    with pytest.raises(RunError, match=r"expected spark://HOST:PORT or local\[N\]"), SparkSession(master):
        pytest.fail("it started")


@pytest.mark.parametrize(
    ("text", "kind", "problem"),
    [
        ("[USER_RAISED_EXCEPTION] too wide SQLSTATE: P0001\nJVM stacktrace:\n at x", "statement", "too wide"),
        ("o.a.s.SparkException: x\njava.io.IOException: No space left on device\n at y", "disk-full", ""),
        ("Total size of results of 3 tasks is bigger than spark.driver.maxResultSize", "too-large", ""),
        ("x [OVERFLOW] of integers. SQLSTATE: 22003\n at", "error", "[OVERFLOW] of integers. SQLSTATE: 22003"),
        ("Job aborted: ExecutorLostFailure (executor 1 exited)", "lost", "its executors have ended"),
        ("java.lang.IllegalStateException: odd\n at q", "error", "java.lang.IllegalStateException: odd"),
    ],
)  # fmt: skip
def test_errors_of_spark_are_one_line(text: str, kind: str, problem: str) -> None:
    assert problem_of(text) == {"kind": kind, "problem": problem}
