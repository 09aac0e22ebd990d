"""Experience and checkpoints as bytes: MessagePack of declared fields, so that reading runs no code.

A checkpoint is a line that identifies it, a digest of the rest, and the rest. Numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from controller.learning.agent.purpose import Kind, MadeFor
from controller.learning.agent.settings import AgentSettings
from controller.learning.agent.weights import Shape, WeightSet
from controller.learning.errors import LearningError
from controller.learning.values import COMMON, Experience, Observation
from dataplane.given import MIB, read_given
from dataplane.malformed import MALFORMED

_FIRST_LINE: Final = b"millrace agent checkpoint 2\n"
_DIGEST_BYTES: Final = 32


class _Seen(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    row: bytes
    candidates: bytes


class _Lived(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    observation: _Seen
    action: int
    reward: float
    following: _Seen | None
    elapsed_ns: int


class HeldRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An experience in the buffer: its number, itself, and its last error."""

    number: int
    experience: bytes
    error: float | None


class LearnerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """State from which a learner resumes."""

    decisions: int
    steps: int
    refused: int
    trained: bytes
    optimiser: tuple[bytes, ...]
    generator: bytes
    torch_state: bytes
    held: tuple[HeldRecord, ...]
    next_number: int
    duplicates: int


class DeciderRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """State from which a decider resumes."""

    generator: bytes
    counts: dict[str, int]
    held: int = 0


class RunRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Position of a training run: the number of finished episodes, and the decisions taken so far in the current one.

    `actions` are 32-bit numbers. `asked` holds one byte per decision: the fallback was asked to choose among all
    candidates (1), a few (2) or both (3); `near` holds these few as a bit per action, padded to whole bytes each time.
    `expects` is a checksum of the next observation: a different one after the same actions means that the input has
    changed.
    """

    input: str
    seed: int
    fallback: str
    decisions: int
    episodes: int
    actions: bytes = b""
    asked: bytes = b""
    near: bytes = b""
    expects: int = 0


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An agent: its settings, the published weights, and, if it is to continue learning, the state to resume from."""

    made_for: MadeFor
    settings: AgentSettings
    shape: Shape
    version: int
    published: bytes
    learner: LearnerRecord | None = None
    decider: DeciderRecord | None = None
    run: RunRecord | None = None

    def weights(self) -> WeightSet:
        """Return the published weights; raise LearningError if they do not fit the shape or are not finite."""
        published = WeightSet.from_buffer(self.shape, self.published, self.version)
        if not published.is_finite:
            raise LearningError(f"version {self.version} has weights that are not finite")
        return published


def experience_to_bytes(experience: Experience) -> bytes:
    """Return an experience as bytes."""
    following = experience.following
    return _ENCODER.encode(
        _Lived(
            _seen(experience.observation),
            int(experience.action),
            float(experience.reward),
            None if following is None else _seen(following),
            int(experience.elapsed_ns),
        )
    )


def experience_from_bytes(data: bytes) -> Experience:
    """Return an experience; raise LearningError for invalid bytes."""
    try:
        lived = _LIVED.decode(data)
    except MALFORMED as error:
        raise LearningError(f"an experience of {len(data)} bytes cannot be read: {error}") from error
    following = None if lived.following is None else _observation(lived.following)
    return Experience(_observation(lived.observation), lived.action, lived.reward, following, lived.elapsed_ns)


def experiences_to_bytes(experiences: list[bytes]) -> bytes:
    """Return experiences as one piece of bytes."""
    return _ENCODER.encode(experiences)


def experiences_from_bytes(data: bytes) -> list[Experience]:
    """Return the experiences in one piece of bytes; raise LearningError if it is invalid."""
    try:
        pieces = msgspec.msgpack.decode(data, type=list[bytes])
    except MALFORMED as error:
        raise LearningError(f"experiences of {len(data)} bytes cannot be read: {error}") from error
    return [experience_from_bytes(piece) for piece in pieces]


def checkpoint_to_bytes(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as bytes."""
    content = _ENCODER.encode(checkpoint)
    return _FIRST_LINE + hashlib.sha256(content).digest() + content


def checkpoint_from_bytes(data: bytes | memoryview, name: str) -> Checkpoint:
    """Return a checkpoint; raise LearningError, with its name, if it is damaged or of another kind."""
    data = bytes(data)
    if not data.startswith(_FIRST_LINE):
        raise LearningError(f"{name}: not a checkpoint of an agent, or one of another release")
    start = len(_FIRST_LINE)
    digest, content = data[start : start + _DIGEST_BYTES], data[start + _DIGEST_BYTES :]
    if hashlib.sha256(content).digest() != digest:
        raise LearningError(f"{name}: damaged: its digest does not match")
    try:
        checkpoint = _decoded(content)
        checkpoint.settings.check()
        checkpoint.weights()
    except (*MALFORMED, LearningError) as error:
        raise LearningError(f"{name}: {error}") from error
    return checkpoint


def _decoded(content: bytes) -> Checkpoint:
    """Return a checkpoint; those of before times lost the units in their keys are read for this version."""
    try:
        return _CHECKPOINT.decode(content)
    except msgspec.ValidationError:
        plain = msgspec.msgpack.decode(content)
        renamed = False
        for section, former, key in _FORMER:
            settings = plain.get("settings", {}).get(section, {}) if isinstance(plain, dict) else {}
            if former in settings:
                settings[key] = settings.pop(former)
                renamed = True
        if not renamed:
            raise
        return msgspec.convert(plain, Checkpoint)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically: readers find the old or the new one."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(checkpoint_to_bytes(checkpoint))
                file.flush()
                # Before the rename, or a crash could leave an empty file under the name.
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise LearningError(f"{path}: cannot be written: {error.strerror or error}") from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in a file; raise LearningError with the file if it cannot be read."""
    try:
        data = read_given(path, 1024 * MIB)
    except OSError as error:
        raise LearningError(f"{path}: cannot be read: {error.strerror or error}") from error
    return checkpoint_from_bytes(data, str(path))


def check_for(checkpoint: Checkpoint, path: Path, kind: Kind, observation: Observation) -> Checkpoint:
    """Return a file's checkpoint unchanged if it suits decisions on observations like this one.

    Raises LearningError, with the file, for another purpose or another number of actions.
    """
    try:
        checkpoint.made_for.check(MadeFor.of(kind, observation))
        checkpoint.shape.check(observation)
    except LearningError as error:
        raise LearningError(f"{path}: {error}") from error
    return checkpoint


def generator_to_bytes(generator: np.random.Generator) -> bytes:
    """Return the state of a generator (PCG64), whose numbers have more bits than MessagePack's."""
    state = generator.bit_generator.state
    inner = state["state"]
    fields = (inner["state"], inner["inc"], state["has_uint32"], state["uinteger"])
    return b"".join(int(field).to_bytes(16, "little") for field in fields)


def generator_from_bytes(data: bytes) -> np.random.Generator:
    """Return a generator (PCG64) in a state; raise LearningError for invalid bytes."""
    if len(data) != 64:
        raise LearningError(f"a generator's state of {len(data)} bytes, not of 64")
    state, inc, has, number = (int.from_bytes(data[start : start + 16], "little") for start in range(0, 64, 16))
    generator = np.random.Generator(np.random.PCG64())
    try:
        generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": inc},
            "has_uint32": has,
            "uinteger": number,
        }
    except (OverflowError, ValueError) as error:
        raise LearningError(f"a generator's state cannot be read: {error}") from error
    return generator


def _seen(observation: Observation) -> _Seen:
    return _Seen(observation.row.astype("<f4", copy=False).tobytes(), observation.candidates.tobytes())


def _observation(seen: _Seen) -> Observation:
    actions = len(seen.candidates)
    figures, rest = divmod(len(seen.row) // 4 - COMMON, max(actions, 1))
    has_all = figures >= 2 if actions else figures == 0
    if len(seen.row) % 4 or rest or not has_all or max(seen.candidates, default=0) > 1:
        raise LearningError(f"{len(seen.row)} bytes of figures and {actions} candidates are not an observation")
    return Observation(np.frombuffer(seen.row, "<f4"), np.frombuffer(seen.candidates, np.bool_))


_ENCODER: Final = msgspec.msgpack.Encoder()
_LIVED: Final = msgspec.msgpack.Decoder(_Lived)
_FORMER: Final = (("training", "discount_time_ns", "discount_time"), ("decisions", "deadline_ns", "deadline"))
_CHECKPOINT: Final = msgspec.msgpack.Decoder(Checkpoint)
