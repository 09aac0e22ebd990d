"""Compressed event logs: gzip, zstd, and the block formats of lz4 and snappy that Spark writes, part by part.

Spark's lz4 is lz4-java's LZ4BlockOutputStream (not the lz4 frame format): blocks of
    magic "LZ4Block", token (high 4 bits 1: stored, 2: lz4), compressed and plain length, checksum (32 bits each, little
    endian), data.
Its snappy is snappy-java's SnappyOutputStream: a header of 16 bytes, then chunks of length (32 bits, big endian), data.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from typing import Any, Final

from controller.acceleration.errors import AccelerationError

_PART: Final = 1 << 16
_MOST_BLOCK: Final = 64 << 20
"""Longest block: lz4-java's limit is 32 MiB."""
_LZ4: Final = struct.Struct("<8sBiiI")
_LZ4_MAGIC: Final = b"LZ4Block"
_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEADER: Final = 16


def parts_of(file: BufferedReader, name: str) -> Iterator[bytes]:
    """Yield a log's plain bytes, by the magic number that it begins with.

    Raise EOFError after the last part if compressed data end in the middle, ValueError for damaged data, and
    AccelerationError for a format that is not supported, and if pyarrow, which decompresses, is missing.
    """
    head = file.peek(8)[:8]
    for magic, read in _READERS.items():
        if head.startswith(magic):
            yield from read(file, name)
            return
    if head.startswith(b"ZV"):
        raise AccelerationError(f"{name}: lzf is not supported; zstd, lz4, snappy and gzip are")
    while part := file.read(_PART):
        yield part


def _gzip(file: BufferedReader, _: str) -> Iterator[bytes]:
    plain = zlib.decompressobj(wbits=31)
    try:
        while part := file.read(_PART):
            while part:
                yield plain.decompress(part, _PART)
                part = plain.unconsumed_tail or plain.unused_data
                if plain.eof and part:
                    plain = zlib.decompressobj(wbits=31)
    except zlib.error as error:
        raise ValueError(f"damaged gzip data: {error}") from None
    if not plain.eof:
        raise EOFError


def _stream(codec: str) -> Callable[[BufferedReader, str], Iterator[bytes]]:
    def read(file: BufferedReader, name: str) -> Iterator[bytes]:
        arrow = _arrow(name)
        with arrow.CompressedInputStream(arrow.PythonFile(file, mode="r"), codec) as stream:
            try:
                while part := stream.read(_PART):
                    yield part
            except OSError as error:
                if "runcated" in str(error):
                    raise EOFError from None
                raise ValueError(f"damaged {codec} data") from None

    return read


def _lz4_blocks(file: BufferedReader, name: str) -> Iterator[bytes]:
    codec = _arrow(name).Codec("lz4_raw")
    while header := file.read(_LZ4.size):
        if len(header) < _LZ4.size:
            raise EOFError
        magic, token, length, plain, _ = _LZ4.unpack(header)
        if magic != _LZ4_MAGIC or not (0 <= length <= _MOST_BLOCK and 0 <= plain <= _MOST_BLOCK):
            raise ValueError("damaged lz4 data")
        data = file.read(length)
        if len(data) < length:
            raise EOFError
        if plain:
            yield data if token >> 4 == 1 else _decompressed(codec, data, plain)


def _snappy_chunks(file: BufferedReader, name: str) -> Iterator[bytes]:
    codec = _arrow(name).Codec("snappy")
    file.read(_SNAPPY_HEADER)
    while header := file.read(4):
        length = int.from_bytes(header, "big")
        if header.startswith(_SNAPPY_MAGIC[:4]):
            # Appended streams begin with a header of their own.
            file.read(_SNAPPY_HEADER - 4)
            continue
        if length > _MOST_BLOCK:
            raise ValueError("damaged snappy data")
        data = file.read(length)
        if len(header) < 4 or len(data) < length:
            raise EOFError
        yield _decompressed(codec, data, _snappy_length(data))


def _snappy_length(data: bytes) -> int:
    """Return the plain length at the beginning of a snappy block: a varint."""
    length = 0
    for index, byte in enumerate(data[:5]):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            break
    return length


def _decompressed(codec: Any, data: bytes, plain: int) -> bytes:  # noqa: ANN401 - pyarrow has no types
    if plain > _MOST_BLOCK:
        raise ValueError(f"damaged {codec.name} data")
    try:
        part: bytes = codec.decompress(data, plain, asbytes=True)
    except OSError:
        raise ValueError(f"damaged {codec.name} data") from None
    return part


def _arrow(name: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    try:
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and only for compressed logs
    except ImportError:
        raise AccelerationError(
            f"{name}: a compressed log needs pyarrow: pip install 'millrace-net[history]'"
        ) from None
    return pa


_READERS: Final[dict[bytes, Callable[[BufferedReader, str], Iterator[bytes]]]] = {
    b"\x1f\x8b": _gzip,
    b"\x28\xb5\x2f\xfd": _stream("zstd"),
    b"\x04\x22\x4d\x18": _stream("lz4"),
    _LZ4_MAGIC: _lz4_blocks,
    _SNAPPY_MAGIC: _snappy_chunks,
}
