"""The long history over HTTP: uploaded once, compacted without a row lost or doubled, whatever ends in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors.counters import Count, Counters
from collectors.errors import HistoryError
from collectors.history.files import listing, note_uploaded, uploaded
from collectors.history.objects.bucket import Bucket
from collectors.history.objects.compaction import Compactor, days_in
from collectors.history.objects.keys import compacted_name
from collectors.history.objects.query import bucket_at, query_objects
from collectors.history.objects.service import LongHistory
from collectors.history.objects.settings import ObjectStoreSettings
from collectors.history.objects.upload import Uploader
from collectors.history.retention import HistoryKeeper
from collectors.history.schema import TABLES
from collectors.history.settings import HistorySettings, Tier
from collectors.history.writer import HistoryWriter
from collectors.shards.settings import CollectorLeases
from tests.collectors.history.objects.moto_process import ENVIRONMENT, Moto
from tests.collectors.history.samples import NOON_S, S_NS, link, links_at, maker
from tests.waiting import finish_within, until

DAY_S = 86_400
SUM = "select shard, count(*), sum(delay_mean_ns) from links group by shard order by shard"
Rows = list[tuple[object, ...]]


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """Return a running store."""
    with Moto(tmp_path_factory.mktemp("moto")) as running:
        yield running


@pytest.fixture
def settings(moto: Moto, request: pytest.FixtureRequest) -> ObjectStoreSettings:
    """Return settings with a prefix of the test's own."""
    return moto.settings(prefix=request.node.name, compact_after_ns=0, keep_replaced_ns=0)


@pytest.fixture
def bucket(settings: ObjectStoreSettings) -> Bucket:
    return Bucket(settings, ENVIRONMENT)


def history(folder: Path, seconds: range, store: ObjectStoreSettings | None = None) -> HistorySettings:
    """Write a history of links with a row every five seconds, a file a minute; return its settings."""
    settings = HistorySettings(
        folder=str(folder),
        file_span_ns=60 * S_NS,
        keep_ns=60 * S_NS,
        tiers=(Tier(interval_ns=10 * S_NS, keep_ns=3600 * S_NS),),
        merge_files=2,
        store=store,
    )
    writer, rows = HistoryWriter(settings), maker(folder)
    for second in seconds[::5]:
        writer.write(*links_at(rows, second, link(second + 1)))
    writer.close(pytest.fail)
    return settings


def rows(bucket: Bucket, statement: str = SUM) -> Rows:
    table = pa.Table.from_batches(list(query_objects(bucket, statement).batches) or [pa.record_batch({"none": []})])
    return [tuple(row.values()) for row in table.to_pylist()]


def compactor(bucket: Bucket, settings: ObjectStoreSettings, *, days: int = 2) -> Compactor:
    return Compactor(bucket, settings, lambda: 2_000_000_000.0 + days * DAY_S)


def names(bucket: Bucket) -> list[str]:
    return [stored.key.rpartition("/")[2] for stored in bucket.listing("links")]


def test_uploaded_rows_are_those_of_the_folder(tmp_path: Path, bucket: Bucket) -> None:
    history(tmp_path / "a", range(180))
    history(tmp_path / "b", range(60))
    for shard in "ab":
        Uploader(tmp_path / shard, shard, bucket).step()
    assert rows(bucket) == [("a", 36, sum(range(1, 181, 5))), ("b", 12, sum(range(1, 61, 5)))]
    assert rows(bucket, "select count(*) from paths") == [(0,)]
    key = bucket.listing("links")[0].key
    assert key.startswith(f"links/shard=a/day=2023-11-14/{NOON_S + 55}-00000001-")


def test_upload_is_repeated_after_a_crash_without_a_copy(tmp_path: Path, bucket: Bucket) -> None:
    history(tmp_path, range(120))
    uploader = Uploader(tmp_path, "a", bucket)
    uploader.step()
    assert uploader.uploaded_files == 2
    # The process ended after a write, before it could remember that.
    note_uploaded(tmp_path / "links", 0)
    again = Uploader(tmp_path, "a", bucket)
    again.step()
    assert (again.uploaded_files, len(names(bucket)), uploaded(tmp_path / "links")) == (0, 2, 2)


def test_files_wait_unmerged_while_the_store_is_away(tmp_path: Path, bucket: Bucket) -> None:
    away = ObjectStoreSettings(bucket="long", endpoint="http://127.0.0.1:1")
    kept = history(tmp_path, range(600), away)
    with pytest.raises(HistoryError, match=r"^s3://long/millrace: cannot write links/shard=a/.*Connection refused$"):
        Uploader(tmp_path, "a", Bucket(away, ENVIRONMENT)).step()
    later_s = NOON_S + 660
    HistoryKeeper(kept, pytest.fail).tidy(later_s)
    assert len(listing(tmp_path / "links").files) == 10
    Uploader(tmp_path, "a", bucket).step()
    assert rows(bucket) == [("a", 120, sum(range(1, 601, 5)))]
    HistoryKeeper(kept, pytest.fail).tidy(later_s)
    merged = listing(tmp_path / "links").files
    assert len(merged) < 10
    # What has been merged is in the store already.
    Uploader(tmp_path, "a", bucket).step()
    assert rows(bucket) == [("a", 120, sum(range(1, 601, 5)))]


def test_full_folder_drops_the_oldest_even_if_not_uploaded(tmp_path: Path) -> None:
    away = ObjectStoreSettings(bucket="long", endpoint="http://127.0.0.1:1")
    kept = msgspec.structs.replace(history(tmp_path, range(600), away), max_bytes=1)
    HistoryKeeper(kept, pytest.fail).tidy(NOON_S + 660)
    assert listing(tmp_path / "links").files == ()


def test_compacted_day_is_one_object_with_the_same_rows(
    tmp_path: Path, bucket: Bucket, settings: ObjectStoreSettings
) -> None:
    history(tmp_path / "a", range(180))
    history(tmp_path / "b", range(180))
    for shard in "ab":
        Uploader(tmp_path / shard, shard, bucket).step()
    before = rows(bucket)
    first = compactor(bucket, settings)
    first.step()
    # All are still there, and none is read twice.
    assert (first.compacted, len(names(bucket)), rows(bucket)) == (2, 8, before)
    second = compactor(bucket, settings)
    second.step()
    assert (second.deleted, names(bucket), rows(bucket)) == (6, [compacted_name(1)] * 2, before)
    third = compactor(bucket, settings)
    third.step()
    assert (third.compacted, third.deleted) == (0, 0)
    in_order = "select bool_and(time >= before) from (select time, lag(time) over () as before from links {})"
    assert rows(bucket, in_order.format("where shard = 'a'")) == [(True,)]


def test_late_files_are_added_to_a_compacted_day(tmp_path: Path, bucket: Bucket, settings: ObjectStoreSettings) -> None:
    history(tmp_path, range(120))
    Uploader(tmp_path, "a", bucket).step()
    compactor(bucket, settings).step()
    history(tmp_path, range(120, 240))
    Uploader(tmp_path, "a", bucket).step()
    everything = [("a", 48, sum(range(1, 241, 5)))]
    assert rows(bucket) == everything
    for _ in range(2):
        compactor(bucket, settings).step()
        assert rows(bucket) == everything
    assert names(bucket) == [compacted_name(2)]


def test_compactor_that_is_late_changes_nothing(tmp_path: Path, bucket: Bucket, settings: ObjectStoreSettings) -> None:
    """A compactor that was stopped before its write finds the number taken."""
    history(tmp_path, range(120))
    Uploader(tmp_path, "a", bucket).step()
    late = compactor(bucket, settings)
    put, written = bucket.put, list[bool]()

    def overtaken(key: str, path: Path) -> bool:
        bucket.put = put  # type: ignore[method-assign]
        history(tmp_path, range(120, 180))
        Uploader(tmp_path, "a", bucket).step()
        compactor(bucket, settings).step()
        written.append(put(key, path))
        return written[0]

    bucket.put = overtaken  # type: ignore[method-assign]
    late.step()
    assert (written, late.compacted) == ([False], 0)
    assert rows(bucket) == [("a", 36, sum(range(1, 181, 5)))]


def test_day_that_is_not_over_is_left_alone(tmp_path: Path, bucket: Bucket, settings: ObjectStoreSettings) -> None:
    history(tmp_path, range(120))
    Uploader(tmp_path, "a", bucket).step()
    early = Compactor(bucket, settings, lambda: NOON_S + 3600.0)
    early.step()
    assert early.compacted == 0


def test_columns_that_are_newer_than_a_file_are_null(bucket: Bucket, tmp_path: Path) -> None:
    old = pa.table({"src": ["s1"], "dst": ["s2"], "delay_mean_ns": pa.array([7], pa.int64())})
    file = tmp_path / "old.parquet"
    pq.write_table(old, file)
    assert bucket.put("links/shard=a/day=2023-11-14/0000000001-00000001-0.parquet", file)
    assert rows(bucket, "select delay_mean_ns, utilisation, day from links") == [(7, None, "2023-11-14")]


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("delete from links", "^a query must be a single SELECT"),
        ("select nothing from links", "^Binder Error: Referenced column"),
        ("from read_csv('/etc/passwd')", "Permission Error"),
    ],
)
def test_queries_only_read_the_history(bucket: Bucket, statement: str, complaint: str) -> None:
    with pytest.raises(HistoryError, match=complaint):
        query_objects(bucket, statement)


def test_refused_writes_name_object_and_reason(moto: Moto, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"rows")
    missing = Bucket(ObjectStoreSettings(bucket="missing", endpoint=moto.endpoint), ENVIRONMENT)
    with pytest.raises(HistoryError, match=r"^s3://missing/millrace: cannot write a: 404 NoSuchBucket$") as raised:
        missing.put("a", file)
    assert "EXAMPLEKEY" not in str(raised.value)


def test_url_names_bucket_and_prefix(moto: Moto) -> None:
    environment = ENVIRONMENT | {"AWS_ENDPOINT_URL": moto.endpoint}
    assert str(bucket_at("s3://long/some/where/", environment)) == "s3://long/some/where"
    for url in ("s3://", "s3://user:pass@long/x", "s3://LONG"):
        with pytest.raises(HistoryError, match=r"is not s3://BUCKET\[/PREFIX\]") as raised:
            bucket_at(url, environment)
        assert "pass" not in str(raised.value)


@pytest.mark.parametrize(
    ("endpoint", "complaint"),
    [
        ("http://10.0.0.1:9000", "write plain:http://10.0.0.1:9000"),
        ("https://user:secret@store", "'...@store' is not https"),
        ("store:9000", "is not https"),
    ],
)
def test_endpoints_are_encrypted_or_say_that_they_are_not(endpoint: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as raised:
        ObjectStoreSettings(bucket="long", endpoint=endpoint)
    assert "secret" not in str(raised.value)
    ObjectStoreSettings(bucket="long", endpoint="plain:http://10.0.0.1:9000")


def test_every_table_has_days(tmp_path: Path, bucket: Bucket) -> None:
    assert [days_in(bucket, table) for table in TABLES.values()] == [[]] * len(TABLES)


def test_service_uploads_until_it_is_cancelled(
    tmp_path: Path, bucket: Bucket, settings: ObjectStoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    history(tmp_path, range(120))
    counters, leases = Counters(), CollectorLeases(sqlite=str(tmp_path / "leases"))
    quick = msgspec.structs.replace(settings, retry_ns=10_000_000)

    async def scenario() -> None:
        service = LongHistory(tmp_path, quick, "a", leases, counters, pytest.fail)
        running = asyncio.create_task(service.run())
        await until(lambda: counters[Count.HISTORY_UPLOADED] == 2)
        history(tmp_path, range(120, 180))
        await until(lambda: counters[Count.HISTORY_UPLOADED] == 3)
        running.cancel()
        await asyncio.wait((running,))

    asyncio.run(finish_within(scenario(), 60))
    assert rows(bucket) == [("a", 36, sum(range(1, 181, 5)))]


def test_store_that_is_away_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    history(tmp_path, range(60))
    counters, problems = Counters(), list[str]()
    away = ObjectStoreSettings(bucket="long", endpoint="http://127.0.0.1:1", retry_ns=10_000_000, compact=False)

    async def scenario() -> None:
        running = asyncio.create_task(LongHistory(tmp_path, away, "a", None, counters, problems.append).run())
        await until(lambda: counters[Count.OBJECT_STORE_FAILED] >= 3)
        running.cancel()
        await asyncio.wait((running,))

    asyncio.run(finish_within(scenario(), 60))
    assert len(problems) == 1
    assert "EXAMPLEKEY" not in problems[0]


def test_command_without_credentials_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(HistoryError, match=r"^object store: no credentials: neither AWS_ACCESS_KEY_ID"):
        bucket_at("s3://long/millrace")
