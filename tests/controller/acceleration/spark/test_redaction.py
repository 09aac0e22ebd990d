"""Texts of users that are shown: no credential, no line ends, no more than fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.acceleration.spark.redaction import shown


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2",
        "user=u, passwd = 'hunter2 and more'",
        "create table t using jdbc options (url 'jdbc:x', password 'hunter2')",
        'options ("fs.s3a.secret.key" "hunter2")',
        '{"token": "hunter2"}',
        "spark.hadoop.fs.azure.account.key.store.net=hunter2",
        "Authorization: Bearer hunter2",
        "s3a://key:hunter2@bucket/path",
        "jdbc:postgresql://u:hunter2@host/db",
        "https://x/y?sig=hunter2&a=b",
        "api-key => 'hunter2'",
        "AWS_SECRET_ACCESS_KEY=hunter2 run",
    ],
)
def test_credentials_are_not_shown(text: str) -> None:
    assert "hunter2" not in shown(text, 500)
    assert "***" in shown(text, 500)


def test_access_keys_of_aws_are_not_shown() -> None:
    assert shown("id AKIAABCDEFGHIJKLMNOP there") == "id *** there"


@pytest.mark.parametrize("text", ["TPC-H, q01", "select sum(x) from tokens", "count distinct passwords by day"])
def test_plain_texts_stay(text: str) -> None:
    assert shown(text) == text


@given(st.text(max_size=300))
def test_shown_texts_are_a_short_line(text: str) -> None:
    line = shown(text)
    assert len(line) <= 60
    assert line.isprintable() or not line
