"""Memory that driver threads may still read is kept until each of them has moved on."""

from __future__ import annotations

import ctypes

from dataplane.native import pointer_to
from dataplane.nic.epoch_reclamation import EpochReclamation


def test_thread_has_moved_on_if_idle_or_in_another_epoch() -> None:
    epochs = [4, 7]
    reclamation, done = EpochReclamation(), []
    reclamation.follow([lambda: epochs[0], lambda: epochs[1]])
    reclamation.when_unused(lambda: done.append("first"))
    assert reclamation.collect() == 1
    epochs[0] = 5
    reclamation.when_unused(lambda: done.append("second"))
    assert reclamation.collect() == 2
    epochs[1] = 8
    assert reclamation.collect() == 1
    assert done == ["first"]
    epochs[1] = 9
    assert reclamation.collect() == 1
    epochs[0] = 7
    assert reclamation.collect() == 0
    assert done == ["first", "second"]


def test_nothing_is_kept_without_threads_and_finish_frees_all() -> None:
    done: list[int] = []
    reclamation = EpochReclamation()
    reclamation.when_unused(lambda: done.append(1))
    assert reclamation.collect() == 0
    reclamation.follow([lambda: 1])
    reclamation.when_unused(lambda: done.append(2))
    assert reclamation.collect() == 1
    reclamation.finish()
    assert done == [1, 2]


def test_a_word_holds_what_was_published() -> None:
    word = (ctypes.c_uint64 * 1)(3)
    EpochReclamation().publish(pointer_to(word), 99)
    assert word[0] == 99
