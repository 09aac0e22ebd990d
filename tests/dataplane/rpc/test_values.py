"""Values as messages: round trips; missing and impossible values are named, those that do not fit are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from dataplane.rpc.errors import MessageError
from dataplane.rpc.values import Mirror

_PROTO: Final = """
    Part: name=string count=uint32
    Pair: number=int64 text=string
    Whole: part=Part maybe=?Part parts=*Part pair=?Pair pairs=*Pair words=*string share=double is_new=bool limit=?uint32
"""


def _schemas() -> dict[str, Any]:
    """Return message classes of the description above: ? is optional, * repeated."""
    file = FileDescriptorProto(name="tests/values.proto", package="tests.values.v1", syntax="proto3")
    for line in _PROTO.split("\n")[1:-1]:
        name, _, fields = line.strip().partition(": ")
        message = file.message_type.add(name=name)
        for number, field_name in enumerate(fields.split(), 1):
            label, kind = field_name.split("=")
            field = message.field.add(name=label, number=number)
            field.label = FieldDescriptorProto.LABEL_REPEATED if kind[0] == "*" else FieldDescriptorProto.LABEL_OPTIONAL
            is_scalar = kind.lstrip("?*")[0].islower()
            field.type = FieldDescriptorProto.Type.Value(
                f"TYPE_{kind.lstrip('?*').upper()}" if is_scalar else "TYPE_MESSAGE"
            )
            if not is_scalar:
                field.type_name = kind.lstrip("?*")
            elif kind[0] == "?":
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{label}")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    pool_file = pool.FindFileByName(file.name)
    return {name: GetMessageClass(descriptor) for name, descriptor in pool_file.message_types_by_name.items()}


SCHEMAS: Final = _schemas()


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Whole:
    part: Part
    maybe: Part | None
    parts: tuple[Part, ...]
    pair: tuple[int, str] | None
    pairs: tuple[tuple[int, str], ...]
    words: tuple[str, ...]
    share: float
    is_new: bool
    limit: int = 100


WHOLE: Final[Mirror[Whole, Any]] = Mirror(Whole, SCHEMAS["Whole"])
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PARTS = st.builds(Part, WORDS, st.integers(0, 2**32 - 1))
PAIRS = st.tuples(st.integers(-(2**63), 2**63 - 1), WORDS)
WHOLES = st.builds(
    Whole,
    PARTS,
    PARTS | st.none(),
    st.lists(PARTS, max_size=3).map(tuple),
    PAIRS | st.none(),
    st.lists(PAIRS, max_size=3).map(tuple),
    st.lists(WORDS, max_size=3).map(tuple),
    st.floats(allow_nan=False),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)


@given(WHOLES)
def test_what_goes_in_comes_out(value: Whole) -> None:
    data = WHOLE.message(value).SerializeToString()
    assert WHOLE.value(SCHEMAS["Whole"].FromString(data)) == value


@given(st.binary(max_size=80))
def test_no_bytes_do_more_than_lack_a_field(data: bytes) -> None:
    try:
        message = SCHEMAS["Whole"].FromString(data)
    except Exception as error:  # noqa: BLE001 - protobuf's own
        assert type(error).__name__ == "DecodeError"  # noqa: PT017
        return
    if message.HasField("part"):
        assert WHOLE.message(WHOLE.value(message)).words == message.words
    else:
        with pytest.raises(MessageError, match=r"^tests.values.v1.Whole has no part$"):
            WHOLE.value(message)


def test_what_is_left_out_has_its_default() -> None:
    message = SCHEMAS["Whole"](part=SCHEMAS["Part"](name="a"))
    assert WHOLE.value(message) == Whole(Part("a", 0), None, (), None, (), (), 0.0, is_new=False, limit=100)


def test_what_a_field_cannot_hold_is_one_line() -> None:
    for value in (Part("a", -1), Part("a", 2**32), Part("\ud800", 1)):
        with pytest.raises(MessageError, match=r"^tests\.values\.v1\.Part: ") as caught:
            Mirror(Part, SCHEMAS["Part"]).message(value)
        assert "\n" not in str(caught.value)


@dataclass(frozen=True, slots=True)
class TooFew:
    name: str


@dataclass(frozen=True, slots=True)
class OfOtherKind:
    name: str
    count: str


@dataclass(frozen=True, slots=True)
class Repeated:
    name: str
    count: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lacking:
    name: str | None
    count: int


@pytest.mark.parametrize("kind", [TooFew, OfOtherKind, Repeated, Lacking])
def test_a_type_that_does_not_fit_is_refused_at_once(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match=r"tests.values.v1.Part"):
        Mirror(kind, SCHEMAS["Part"])
