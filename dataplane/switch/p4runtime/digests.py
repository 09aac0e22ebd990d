"""Digest learning: messages bundled into lists, duplicates held back until acknowledged (section 9.8).

Times are nanoseconds on the switch's clock and always arguments; nothing here waits or sends.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

Values = tuple[int, ...]

MAX_LIST_MESSAGES = 4_096
"""Maximum messages in a list unless `max_list_size` sets a smaller limit."""

MAX_UNACKNOWLEDGED = 65_536
"""Maximum messages waiting for an acknowledgement; beyond it the oldest list is forgotten, as if it had timed out."""


@dataclass(frozen=True, slots=True)
class DigestConfig:
    """Bundling of messages.

    `max_timeout_ns`: the longest time a message waits; `max_list_size`: the longest list, 0 for any; `ack_timeout_ns`:
    how long duplicates of sent messages are held back without an acknowledgement.
    """

    max_timeout_ns: int = 0
    max_list_size: int = 0
    ack_timeout_ns: int = 0

    @property
    def list_limit(self) -> int:
        """The number of messages that makes a list complete."""
        return min(self.max_list_size or MAX_LIST_MESSAGES, MAX_LIST_MESSAGES)


@dataclass(frozen=True, slots=True)
class LearnedList:
    """A list to be sent."""

    list_id: int
    messages: tuple[Values, ...]


@dataclass(slots=True)
class _Sent:
    """A list that was sent and not acknowledged, with its messages' keys."""

    sent_ns: int
    keys: tuple[str, ...]


class Learner:
    """One digest: its configuration, the list being filled and the lists waiting for an acknowledgement.

    Every method may be called from any thread. Nothing is learned while `config` is None.
    """

    def __init__(self) -> None:
        self._config: DigestConfig | None = None
        self._lock = threading.Lock()
        self._last_list_id = 0
        self._buffer: dict[str, Values] = {}
        self._buffered_since_ns = 0
        self._sent: dict[int, _Sent] = {}  # by list id, oldest first
        self._held_back: dict[str, int] = {}  # a message's key -> list id

    @property
    def config(self) -> DigestConfig | None:
        """The current configuration; None while learning is off."""
        return self._config

    def configure(self, config: DigestConfig | None) -> None:
        """Change the configuration; None forgets unsent and sent messages."""
        with self._lock:
            self._config = config
            if config is None:
                self._buffer.clear()
                self._forget_sent()

    def learn(self, messages: Sequence[Values], now_ns: int) -> list[LearnedList]:
        """Take messages; return the lists that they complete. Duplicates of waiting or sent messages are dropped."""
        complete: list[LearnedList] = []
        with self._lock:
            config = self._config
            if config is None:
                return complete
            self._expire(config, now_ns)
            for message in messages:
                # Packets choose the values, and so an integer's hash; a string's is randomised per process.
                key = repr(message)
                if key in self._held_back or key in self._buffer:
                    continue
                if not self._buffer:
                    self._buffered_since_ns = now_ns
                self._buffer[key] = message
                if len(self._buffer) >= config.list_limit or not config.max_timeout_ns:
                    complete.append(self._close_list(config, now_ns))
        return complete

    def tick(self, now_ns: int) -> list[LearnedList]:
        """Return the lists that have waited long enough, and forget those not acknowledged in time."""
        with self._lock:
            config = self._config
            if config is None:
                return []
            self._expire(config, now_ns)
            if self._buffer and now_ns - self._buffered_since_ns >= config.max_timeout_ns:
                return [self._close_list(config, now_ns)]
            return []

    def next_due_ns(self) -> int | None:
        """Return when a list must be sent, or None; acknowledgement timeouts need no separate wake-up."""
        with self._lock:
            if self._config is None or not self._buffer:
                return None
            return self._buffered_since_ns + self._config.max_timeout_ns

    def acknowledge(self, list_id: int) -> bool:
        """Allow a list's messages to be learned again; return whether such a list was ever sent."""
        with self._lock:
            self._let_go(list_id)
            return 0 < list_id <= self._last_list_id

    def start_over(self) -> None:
        """Allow all sent messages to be learned again, for a client that has not seen them."""
        with self._lock:
            self._forget_sent()

    def _close_list(self, config: DigestConfig, now_ns: int) -> LearnedList:
        self._last_list_id += 1
        closed, keys = LearnedList(self._last_list_id, tuple(self._buffer.values())), tuple(self._buffer)
        self._buffer.clear()
        if config.ack_timeout_ns:
            self._sent[closed.list_id] = _Sent(now_ns, keys)
            self._held_back.update(dict.fromkeys(keys, closed.list_id))
            while len(self._held_back) > MAX_UNACKNOWLEDGED:
                self._let_go(next(iter(self._sent)))
        return closed

    def _expire(self, config: DigestConfig, now_ns: int) -> None:
        while self._sent:
            list_id, oldest = next(iter(self._sent.items()))
            if now_ns - oldest.sent_ns < config.ack_timeout_ns:
                return
            self._let_go(list_id)

    def _let_go(self, list_id: int) -> None:
        sent = self._sent.pop(list_id, None)
        for key in () if sent is None else sent.keys:
            del self._held_back[key]

    def _forget_sent(self) -> None:
        self._sent.clear()
        self._held_back.clear()
