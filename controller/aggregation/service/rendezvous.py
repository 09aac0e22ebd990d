"""Who is in which job: workers meet by its name, are missed when they are silent, and come back between all-reduces.

A state machine without sockets and clocks: whatever happens is told to it with the time, and it returns what is to be
done. Workers are told apart by their tokens. A change of the switches is one at a time for each job; what is to be done
next is worked out anew from how the job stands after each event, so that nothing depends on the order of events.

A worker that comes to a running job waits until all members hold: they begin no more all-reduces, say how many they
have begun, finish the greatest of these, and say with which item they go on. There the newcomer begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from controller.aggregation.service.admission import problem_of
from controller.aggregation.service.job_state import (
    Action,
    Attendance,
    Change,
    Create,
    End,
    Holding,
    Join,
    Meeting,
    Move,
    Phase,
    Remove,
    Standing,
    Tell,
)
from controller.aggregation.service.settings import JobSettings
from controller.aggregation.service.worker_views import admitted_of, view_of
from controller.intents import Worker
from dataplane.allreduce.membership_messages import (
    Beat,
    Downward,
    Ended,
    Held,
    Hello,
    Leave,
    Past,
    Reached,
    Refused,
    Waiting,
)
from dataplane.wire.aggregation import age


class Rendezvous:
    """All jobs and their workers; each method returns what is to be done because of what it was told."""

    def __init__(self, settings: JobSettings, hosts: Collection[str], change_ns: int) -> None:
        """Know the topology's hosts, and how long a change of the switches may take."""
        self._settings, self._hosts, self._change_ns = settings, frozenset(hosts), change_ns
        self._jobs: dict[int, Meeting] = {}
        self._seats: dict[str, tuple[Meeting, Attendance]] = {}
        self._serial = 0
        self._out: list[Action] = []
        self.ended: deque[Meeting] = deque(maxlen=settings.kept)
        """Jobs that have ended, the newest last."""

    @property
    def jobs(self) -> tuple[Meeting, ...]:
        """Return jobs that have not ended, the oldest first."""
        return tuple(job for job in self._jobs.values() if job.phase is not Phase.ENDED)

    def come(self, hello: Hello, now_ns: int) -> list[Action]:
        """Seat a worker that has come, or has come back over another connection."""
        seat = self._seats.get(hello.token)
        if seat is not None:
            self._return(*seat, hello, now_ns)
        elif hello.number is not None:
            self._tell(hello.token, self._farewell(hello, hello.number))
        else:
            problem = problem_of(hello, self._hosts, self._named(hello.job))
            if problem is None:
                self._seat(hello, now_ns)
            else:
                self._tell(hello.token, Refused(f"job {hello.job}: {problem}"))
        return self._settle(now_ns)

    def hear(self, token: str, message: Beat | Held | Reached | Leave | Past, now_ns: int) -> list[Action]:
        """Take what a worker has said."""
        seat = self._seats.get(token)
        if seat is None:
            self._tell(token, Ended("this worker has been removed from its job", removed=True))
            return self._settle(now_ns)
        job, worker = seat
        worker.heard_ns = now_ns
        if isinstance(message, Beat):
            return []
        match message:
            case Held() if job.hold is not None and message.hold == job.hold.number and job.hold.count is None:
                worker.count = message.count
            case Reached() if job.hold is not None and message.hold == job.hold.number:
                if message.count == job.hold.count:
                    worker.next_item = message.next_item
            case Leave():
                self._say_farewell(job, worker, message.next_item, now_ns)
            case Past():
                worker.past = message.next_item
            case _:
                pass
        return self._settle(now_ns)

    def lose(self, token: str, now_ns: int) -> list[Action]:
        """Note that a worker's connection is gone; it may come back."""
        seat = self._seats.get(token)
        if seat is not None:
            seat[1].lost_ns = now_ns
        return self._settle(now_ns)

    def done(self, change: Change, result: Standing | str, now_ns: int) -> list[Action]:
        """Note that a change of the switches has been made, or cannot be made because of what the text says."""
        job = self._jobs.get(change.key)
        if job is None or job.busy != change:
            return []
        job.busy = None
        problem = result if isinstance(result, str) else None
        if isinstance(result, Standing):
            job.standing = result
        if job.phase is Phase.ENDED:
            self._forget(job, is_there=not isinstance(change, End) and job.standing is not None)
        else:
            self._changed(job, change, problem, now_ns)
        return self._settle(now_ns)

    def fail(self, number: int, reason: str, now_ns: int) -> list[Action]:
        """Note that a job is no longer in the switches."""
        for job in self.jobs:
            if job.standing is not None and job.standing.number == number:
                job.standing = None
                self._end(job, reason, now_ns)
        return self._settle(now_ns)

    def should_move(self, number: int, reason: str, now_ns: int) -> list[Action]:
        """Note that other switches would be better for a job."""
        for job in self.jobs:
            if job.standing is not None and job.standing.number == number:
                job.move = reason
        return self._settle(now_ns)

    def end(self, name: str, reason: str, now_ns: int) -> list[Action] | None:
        """End a job because somebody wants it; None if there is none of that name."""
        job = self._named(name)
        if job is None:
            return None
        self._end(job, reason, now_ns)
        return self._settle(now_ns)

    def remove(self, name: str, host: str, reason: str, now_ns: int) -> list[Action] | None:
        """Take a worker out because somebody wants it; None if there is no such one."""
        job = self._named(name)
        if job is None or (host not in job.members and host not in job.joiners):
            return None
        self._miss(job, host, reason)
        return self._settle(now_ns)

    def pass_time(self, now_ns: int) -> list[Action]:
        """Note that nothing has happened for a while."""
        return self._settle(now_ns)

    def next_ns(self) -> int | None:
        """Return when `pass_time` is due, if nothing happens before."""
        times: list[int] = []
        for job in self.jobs:
            times += [self._missed_ns(worker) for worker in (*job.staying.values(), *job.joiners.values())]
            waiting = job.members if job.phase is Phase.GATHERING else job.joiners
            times += [worker.give_up_ns for worker in waiting.values() if worker.enters is None]
            if job.hold is not None:
                times.append(job.hold.until_ns)
        return min(times, default=None)

    def _named(self, name: str) -> Meeting | None:
        return next((job for job in self.jobs if job.name == name), None)

    def _farewell(self, hello: Hello, number: int) -> Ended:
        """Return what a worker is told that was admitted, and is not known any more."""
        for job in self.jobs:
            if job.standing is not None and job.standing.number == number:
                reason = f"{hello.host} was removed from job {job.name}: it had not been heard for too long"
                return Ended(reason, removed=True)
        for job in reversed(self.ended):
            if job.name == hello.job:
                return Ended(f"job {job.name} has ended: {job.reason}")
        return Ended(f"job {hello.job} has ended: the controller knows no number {number}, it has started anew")

    def _seat(self, hello: Hello, now_ns: int) -> None:
        job = self._named(hello.job)
        if job is None:
            job = self._meet(hello)
        elif hello.host in job.members or hello.host in job.joiners:
            self._miss(job, hello.host, "another worker has come from its host")
            if job.phase is Phase.ENDED:
                self._tell(hello.token, Refused(f"job {hello.job} has just ended: {job.reason}"))
                return
        worker = Attendance(hello, now_ns, now_ns + hello.deadline_ns)
        self._seats[hello.token] = job, worker
        (job.members if job.phase is Phase.GATHERING else job.joiners)[hello.host] = worker
        self._show_waiting(job, worker)

    def _meet(self, hello: Hello) -> Meeting:
        self._serial += 1
        window = self._settings.window if hello.window is None else hello.window
        default = hello.workers if self._settings.capacity is None else max(self._settings.capacity, hello.workers)
        capacity = default if hello.capacity is None else hello.capacity
        job = self._jobs[self._serial] = Meeting(self._serial, hello, window, capacity, hello.workers)
        return job

    def _return(self, job: Meeting, worker: Attendance, hello: Hello, now_ns: int) -> None:
        """Tell a worker over its new connection how things are."""
        worker.heard_ns, worker.lost_ns = now_ns, None
        if job.members.get(hello.host) is not worker or job.standing is None:
            self._show_waiting(job, worker)
            return
        if job.hold is not None and hello.host in job.hold.entered:
            return
        if hello.number is None:
            self._admit(job, worker)
        self._tell(hello.token, view_of(job, hello.host, now_ns, self._change_ns))

    def _say_farewell(self, job: Meeting, worker: Attendance, item: int, now_ns: int) -> None:
        """Let a worker go at once, or have the others say when they have all results that it has.

        They may lack some, which the switches may have forgotten, and would get sums without it once it has gone.
        """
        if job.standing is None or job.members.get(worker.asked.host) is not worker:
            self._leave(job, worker)
        elif worker.leaves is None:
            worker.leaves = item
            self._show(job, now_ns)

    def _let_go(self, job: Meeting) -> None:
        """Let leavers go whom nobody who stays needs any more."""
        for host, item in job.leavers.items():
            if all(one.past is not None and age(one.past, than=item) >= 0 for one in job.staying.values()):
                self._leave(job, job.members[host])

    def _leave(self, job: Meeting, worker: Attendance) -> None:
        was_member = job.members.get(worker.asked.host) is worker
        farewell = Ended(f"{worker.asked.host} has left job {job.name}", removed=True)
        self._drop(job, worker.asked.host, farewell)
        if was_member and job.phase is not Phase.GATHERING:
            job.size -= 1

    def _miss(self, job: Meeting, host: str, why: str) -> None:
        """Take a worker out that has not left by itself; end the job where too few are left."""
        self._drop(job, host, Ended(f"{host} was removed from job {job.name}: {why}", removed=True))

    def _drop(self, job: Meeting, host: str, farewell: Downward) -> None:
        worker = job.joiners.pop(host, None)
        if worker is None:
            worker = job.members.pop(host)
            if job.phase is not Phase.GATHERING:
                job.gone.append(host)
        elif isinstance(job.busy, Join) and job.busy.token == worker.asked.token:
            job.gone.append(host)
        self._tell(worker.asked.token, farewell)
        self._seats.pop(worker.asked.token, None)

    def _settle(self, now_ns: int) -> list[Action]:
        """Do what time and the state of each job ask for; return all that is to be done."""
        for job in self.jobs:
            self._watch(job, now_ns)
            while job.phase is not Phase.ENDED and job.busy is None and self._step(job, now_ns):
                pass
        out, self._out = self._out, []
        return out

    def _missed_ns(self, worker: Attendance) -> int:
        """Return when a worker is taken for dead if nothing is heard of it."""
        lease_ns = worker.heard_ns + self._settings.lease_ns
        return lease_ns if worker.lost_ns is None else min(lease_ns, worker.lost_ns + self._settings.reconnect_ns)

    def _watch(self, job: Meeting, now_ns: int) -> None:
        """Remove who is silent, refuse who has waited for long enough, and give up a hold that lasts too long."""
        for host, worker in (*job.staying.items(), *job.joiners.items()):
            if self._missed_ns(worker) <= now_ns:
                silent_s = (now_ns - worker.heard_ns) / 1e9
                gone = ", its connection is gone" if worker.lost_ns is not None else ""
                self._miss(job, host, f"it was not heard for {silent_s:.1f} s{gone}")
        self._let_go(job)
        if job.phase is Phase.GATHERING:
            late = min((worker.give_up_ns for worker in job.members.values()), default=now_ns + 1)
            if len(job.members) < job.asked.workers and late <= now_ns:
                present = f"{len(job.members)} of {job.asked.workers} workers ({' '.join(sorted(job.members))})"
                self._end(job, f"only {present} came in time", now_ns)
            return
        for host, worker in tuple(job.joiners.items()):
            if worker.give_up_ns <= now_ns and not _is_joining(job, worker):
                self._refuse(job, [host], "the others did not come to a point where it could join in time")
        if job.hold is not None and job.hold.until_ns <= now_ns and not isinstance(job.busy, Join | Move):
            self._give_up(job, now_ns)

    def _step(self, job: Meeting, now_ns: int) -> bool:
        """Take the next step of a job that nothing is being changed of; return whether there was one."""
        if job.phase is Phase.GATHERING:
            return self._gather(job, now_ns)
        if job.standing is None:
            return False
        standing = job.standing
        if not job.members or 2 * len(job.members) < job.size:
            left = f"{len(job.members)} of {job.size} workers are left" if job.size else "all workers have left"
            self._end(job, left, now_ns)
        elif job.gone:
            self._change(job, Remove(job.key, standing.number, job.gone.popleft()))
        elif job.hold is None:
            return self._begin_hold(job, now_ns)
        elif job.hold.count is None:
            return self._find_count(job, job.hold, now_ns)
        else:
            return self._proceed(job, job.hold, standing, now_ns)
        return True

    def _gather(self, job: Meeting, now_ns: int) -> bool:
        if not job.members:
            self._end(job, "all workers have gone before it began", now_ns)
            return True
        if len(job.members) < job.asked.workers:
            return False
        job.phase = Phase.CREATING
        workers = tuple(_seat_of(job.members[host]) for host in sorted(job.members))
        server = None if job.asked.server is None else Worker(*job.asked.server)
        self._change(job, Create(job.key, workers, job.window, job.capacity, server))
        return True

    def _begin_hold(self, job: Meeting, now_ns: int) -> bool:
        if job.move is None and not job.joiners:
            return False
        self._serial += 1
        job.phase, job.hold = Phase.HELD, Holding(self._serial, now_ns + self._settings.hold_ns)
        for worker in job.members.values():
            worker.count = worker.next_item = None
        self._show(job, now_ns)
        return True

    def _find_count(self, job: Meeting, hold: Holding, now_ns: int) -> bool:
        counts = [worker.count for worker in job.staying.values() if worker.count is not None]
        if len(counts) < len(job.members):
            return False
        hold.count = max(counts)
        self._show(job, now_ns)
        return True

    def _proceed(self, job: Meeting, hold: Holding, standing: Standing, now_ns: int) -> bool:
        """All members are to finish the same all-reduce; when they have, change what is to be changed, and go on."""
        items = {worker.next_item for worker in job.members.values()}
        if None in items:
            return False
        if len(items) > 1:
            self._refuse(job, tuple(job.joiners), "its workers do not reduce the same sizes in the same order")
            self._release(job, now_ns)
        elif job.joiners:
            hold.item = items.pop() or 0
            worker = next(iter(job.joiners.values()))
            self._change(job, Join(job.key, standing.number, _seat_of(worker), worker.asked.token))
        elif job.move is not None:
            self._change(job, Move(job.key, standing.number))
        else:
            self._release(job, now_ns)
        return True

    def _changed(self, job: Meeting, change: Change, problem: str | None, now_ns: int) -> None:
        match change:
            case Create() if problem is not None:
                self._end(job, problem, now_ns)
            case Create():
                job.phase = Phase.RUNNING
                for worker in job.members.values():
                    self._admit(job, worker)
            case Remove() if problem is not None:
                self._end(job, f"{change.host} cannot be taken out: {problem}", now_ns)
            case Remove():
                self._show(job, now_ns)
            case Join():
                self._joined(job, change, problem)
            case Move():
                job.move = None
            case End():
                pass

    def _joined(self, job: Meeting, change: Join, problem: str | None) -> None:
        host = change.worker.host
        worker = job.joiners.get(host)
        if worker is None or worker.asked.token != change.token:
            # Gone meanwhile: it waits to be taken out of the switches, if it is in.
            if problem is not None:
                job.gone.remove(host)
        elif problem is not None:
            self._refuse(job, [host], problem)
        else:
            self._enter(job, host)

    def _enter(self, job: Meeting, host: str) -> None:
        """Make a joiner a member, which begins where the others go on."""
        hold = job.hold
        assert hold is not None
        assert hold.count is not None
        worker = job.members[host] = job.joiners.pop(host)
        worker.next_item, worker.count, worker.enters = hold.item, hold.count, (hold.item, hold.count)
        hold.entered.append(host)
        job.size = max(job.size, len(job.members))

    def _admit(self, job: Meeting, worker: Attendance) -> None:
        self._tell(worker.asked.token, admitted_of(job, worker, self._settings.lease_ns, self._change_ns))

    def _give_up(self, job: Meeting, now_ns: int) -> None:
        hold = job.hold
        assert hold is not None
        late = [
            host for host, one in job.staying.items() if (one.count if hold.count is None else one.next_item) is None
        ]
        what = "say what it had begun" if hold.count is None else f"come to the end of {_what(job)} {hold.count}"
        reason = f"{' '.join(sorted(late)) or 'nobody'} did not {what} within {self._settings.hold_ns / 1e9:g} s"
        self._refuse(job, tuple(job.joiners), reason)
        job.move = None
        self._release(job, now_ns)

    def _release(self, job: Meeting, now_ns: int) -> None:
        hold = job.hold
        assert hold is not None
        job.phase, job.hold, job.newest = Phase.RUNNING, None, tuple(hold.entered)
        for host in hold.entered:
            if host in job.members:
                job.members[host].newest = job.newest
                self._admit(job, job.members[host])
        self._show(job, now_ns)

    def _refuse(self, job: Meeting, hosts: Iterable[str], why: str) -> None:
        for host in hosts:
            worker = job.joiners.pop(host)
            self._seats.pop(worker.asked.token, None)
            self._tell(worker.asked.token, Refused(f"job {job.name}: {why}"))

    def _end(self, job: Meeting, reason: str, now_ns: int) -> None:
        """End a job and tell all its workers the same."""
        begun = job.phase not in (Phase.GATHERING, Phase.CREATING)
        text = f"job {job.name} has ended: {reason}" if begun else f"job {job.name}: {reason}"
        for worker in (*job.members.values(), *job.joiners.values()):
            is_member = begun and job.members.get(worker.asked.host) is worker
            self._tell(worker.asked.token, Ended(text) if is_member else Refused(text))
            self._seats.pop(worker.asked.token, None)
        if begun or job.members:
            self.ended.append(job)
        job.phase, job.reason, job.ended_ns, job.hold = Phase.ENDED, reason, now_ns, None
        if job.busy is None:
            self._forget(job, is_there=job.standing is not None)

    def _forget(self, job: Meeting, *, is_there: bool) -> None:
        """Have nothing more to do with an ended job, once the switches hold nothing of it."""
        if is_there and job.standing is not None:
            self._change(job, End(job.key, job.standing.number))
        else:
            del self._jobs[job.key]

    def _change(self, job: Meeting, change: Change) -> None:
        job.busy = change
        self._out.append(change)

    def _tell(self, token: str, message: Downward) -> None:
        self._out.append(Tell(token, message, last=isinstance(message, Refused | Ended)))

    def _show_waiting(self, job: Meeting, worker: Attendance) -> None:
        self._tell(worker.asked.token, Waiting(tuple(sorted(job.members)), job.asked.workers))

    def _show(self, job: Meeting, now_ns: int) -> None:
        """Tell all members how the job stands."""
        for host, worker in job.members.items():
            self._tell(worker.asked.token, view_of(job, host, now_ns, self._change_ns))


def _seat_of(worker: Attendance) -> Worker:
    return Worker(worker.asked.host, worker.asked.udp_port)


def _is_joining(job: Meeting, worker: Attendance) -> bool:
    return isinstance(job.busy, Join) and job.busy.token == worker.asked.token


def _what(job: Meeting) -> str:
    return "round" if job.asked.boundaries else "all-reduce"
