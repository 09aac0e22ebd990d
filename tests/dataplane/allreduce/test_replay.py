"""A switch restarts within an all-reduce: some workers have results that it has lost, others lack them."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import ExitStack

import numpy as np
import pytest
from numpy.typing import NDArray

from dataplane.allreduce.client import AllReducer
from dataplane.allreduce.engine import EngineSettings
from dataplane.allreduce.errors import NoResultError
from dataplane.allreduce.reference.aggregator import Aggregator, Job, Multicast
from dataplane.errors import AllReduceError
from dataplane.wire.aggregation import Aggregation
from tests.dataplane.allreduce.serving import JOB, Server, Weather

WORKERS, WINDOW = 3, 4
JOB_AS_IT_WAS = Job(epoch=1, children=0b111, cells=2 * WINDOW)
JOB_OF_TWO = Job(epoch=2, children=0b011, cells=2 * WINDOW)


Outcomes = list[NDArray[np.float32] | AllReduceError]


class Forgetful(Server):
    """Gives the results of some items to one child only; then, or after the last of them, it loses all state."""

    def __init__(self, weather: Weather, lacking: range) -> None:
        super().__init__(WORKERS, WINDOW, weather)
        self._lacking, self._soon, self.has_forgotten = lacking, 60, False

    def _take(self, packet: Aggregation, child: int) -> None:
        if self.has_forgotten or packet.item not in self._lacking:
            super()._take(packet, child)
            return
        answer = self.switch.from_child(child, packet)
        self._soon -= 1  # a lost contribution to the last of them is not repeated while other results are missing
        if isinstance(answer, Multicast):
            self._complete.add(packet.item)
            address = next(address for address, number in self.children.items() if number == 0)
            self._put(answer.packet.encode(), address)
        if self._soon == 0 or (isinstance(answer, Multicast) and packet.item == self._lacking[-1]):
            self._forget(JOB_AS_IT_WAS)

    def _forget(self, job: Job) -> None:
        self.switch, self.has_forgotten = Aggregator({JOB: job}), True


class Changing(Forgetful):
    """An item's result reaches no worker at first; then one leaves, another gets it, and all state is lost."""

    def _take(self, packet: Aggregation, child: int) -> None:
        if self.has_forgotten or packet.item not in self._lacking:
            Server._take(self, packet, child)
        elif self.switch.jobs[JOB] == JOB_AS_IT_WAS:
            if isinstance(self.switch.from_child(child, packet), Multicast):
                self._complete.add(packet.item)
                self.switch.jobs[JOB] = JOB_OF_TWO
        elif child == 1 and packet.epoch == JOB_OF_TWO.epoch:  # its packets from before the change are lost
            Server._take(self, packet, child)
            self._forget(JOB_OF_TWO)


def reduce(server: Server, patience_s: float) -> list[Outcomes]:
    """Return what each worker, in the order of children, gets for three all-reduces of as many ones as its number."""
    settings = EngineSettings(
        "127.0.0.1", JOB, WINDOW, WORKERS, 1, port=server.port, patience_s=patience_s, longest_timeout_s=0.02
    )
    with ExitStack() as stack:
        workers = [stack.enter_context(AllReducer(settings)) for _ in range(WORKERS)]
        server.children.update({worker.local_address: at for at, worker in enumerate(workers)})
        values = [np.full(5_000, number, np.float32) for number in range(1, WORKERS + 1)]
        futures = [[worker.all_reduce(mine) for _ in range(3)] for worker, mine in zip(workers, values, strict=True)]
        return [[result_of(future) for future in row] for row in futures]


def result_of(future: Future[NDArray[np.float32]]) -> NDArray[np.float32] | AllReduceError:
    try:
        return future.result(20)
    except AllReduceError as error:
        return error


@pytest.mark.parametrize("lacking", [range(9, 10), range(8, 12), range(27, 30)])
@pytest.mark.parametrize("weather", [Weather(), Weather(loss=0.1, late=0.1, repeated=0.1)])
def test_what_only_some_have_is_added_up_once_more(lacking: range, weather: Weather) -> None:
    server = Forgetful(weather, lacking)
    with server:
        for row in reduce(server, 15.0):
            assert all(np.all(values == 6) for values in row)
        assert server.has_forgotten


def test_result_of_an_earlier_epoch_is_not_reused() -> None:
    server = Changing(Weather(), range(9, 10))
    with server:
        first, second, _ = reduce(server, 0.5)
        assert server.has_forgotten
    assert isinstance(first[0], NoResultError)
    assert isinstance(second[0], NoResultError)
