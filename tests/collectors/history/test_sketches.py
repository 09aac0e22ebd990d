"""Sketches as columns: DuckDB's sums and quantiles are those of the plain sketch."""

from __future__ import annotations

import math
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.history.sketches import SKETCH, sketch_array
from collectors.history.views import connect
from collectors.statistics.sketch import Sketch, middle_of

delays = st.lists(st.integers(0, 2**36), max_size=12)
SHARES = (0.0, 0.01, 0.07, 0.5, 0.99, 1.0)


def sketch_of(numbers: list[int]) -> Sketch:
    sketch = Sketch()
    for number in numbers:
        sketch.add(number)
    return sketch


def entries(sketch: Sketch) -> list[dict[str, int]]:
    return [{"bucket": bucket, "count": count} for bucket, count in sorted(sketch.buckets.items())]


def quantile_of(sketch: Sketch, share: float) -> int | None:
    """Return the middle of the bucket of nearest rank: a column does not know the least and the greatest number."""
    places = sorted(sketch.buckets.elements())
    return middle_of(places[max(math.ceil(Fraction(str(share)) * len(places)), 1) - 1]) if places else None


def test_a_column_of_sketches() -> None:
    filled = sketch_of([5, 5, 900])
    array = sketch_array([None, filled, Sketch()])
    assert array.type == SKETCH
    assert array.to_pylist() == [None, entries(filled), []]
    assert sketch_array([None]).to_pylist() == [None]


@settings(max_examples=25, deadline=None)
@given(groups=st.lists(st.lists(delays, min_size=1, max_size=5), min_size=1, max_size=5))
def test_sums_and_quantiles_are_the_plain_sketchs(groups: list[list[list[int]]]) -> None:
    rows = [(index, sketch_of(numbers)) for index, group in enumerate(groups) for numbers in group]
    table = pa.table({"place": [index for index, _ in rows], "sketch": sketch_array([sketch for _, sketch in rows])})
    quantiles = ", ".join(f"delay_quantile(sketch, {share})" for share in SHARES)
    with connect() as connection:
        connection.register("t", table)
        statement = f"select sketch_sum(flatten(list(sketch))), {quantiles} from t group by place order by place"
        fetched = connection.sql(statement).fetchall()
    for (merged, *answers), group in zip(fetched, groups, strict=True):
        wanted = sketch_of([number for numbers in group for number in numbers])
        assert merged == entries(wanted)
        assert answers == [quantile_of(wanted, share) for share in SHARES]


@pytest.mark.parametrize("sketch", ["NULL", "[]"])
def test_of_nothing_there_is_no_quantile(sketch: str) -> None:
    with connect() as connection:
        assert connection.sql(f"select sketch_quantile({sketch}, 0.5::double)").fetchall() == [(None,)]
