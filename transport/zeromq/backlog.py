"""The events of a group that nobody works on, in the order in which they are to be given out.

    add ──▶ waiting ──take──▶ held by a member ──settle──▶ gone
               ▲                     │
               └──────put_back───────┘      with its old number: it goes first

Jobs are given out by number, the lowest first. Where a group is ordered, jobs with the same key
form a line: only the first of a line can be taken, and while a member holds jobs of a line the
others of it are for that member alone. So no two members have the same key at the same time, and
each key is worked on in order.

Two kinds of heaps hold the first of each line: one for lines that nobody holds, and one for each
member. An entry that has become wrong is noticed when it comes up, and dropped.
"""

import heapq
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Literal


class Line:
    """The jobs with one key."""

    __slots__ = ("held", "holder", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Job] = deque()
        self.holder: Hashable | None = None
        self.held = 0


class Job:
    """An event that one member of a group is to get."""

    __slots__ = (
        "attempts", "data", "failures", "key", "line", "number", "sequence", "state", "stream",
    )  # fmt: skip

    def __init__(
        self, number: int, stream: str, sequence: int, key: str | None, data: bytes
    ) -> None:
        self.number = number
        """Its place in the group: lower ones go first."""
        self.stream = stream
        self.sequence = sequence
        self.key = key
        self.data = data
        self.attempts = 0
        """How often it has been handed out."""
        self.failures = 0
        """How often the member that was working on it died, or said nothing for too long."""
        self.line: Line | None = None
        self.state: Literal["waiting", "held", "gone"] = "waiting"

    def __lt__(self, other: "Job") -> bool:
        return self.number < other.number


class Backlog:
    """Jobs that wait, and who may have which."""

    def __init__(self, *, is_ordered: bool) -> None:
        self._is_ordered = is_ordered
        self._lines: dict[str, Line] = {}
        self._free: list[Job] = []
        self._own: dict[Hashable, list[Job]] = {}
        self._waiting = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        """Jobs that wait."""
        return self._waiting

    def add(self, job: Job) -> None:
        """Takes a new job in, with a number above all others."""
        self._count(job, +1)
        if not self._is_ordered or job.key is None:
            heapq.heappush(self._free, job)
            return
        line = job.line = self._lines.setdefault(job.key, Line())
        line.waiting.append(job)
        if len(line.waiting) == 1:
            self._expose(line)

    def take(self, holder: Hashable) -> Job | None:
        """The next job that `holder` may have; None when there is none for it."""
        heap = self._next_heap(holder)
        if heap is None:
            return None
        job = heapq.heappop(heap)
        job.state = "held"
        self._count(job, -1)
        if job.line is not None:
            line = job.line
            line.waiting.popleft()
            line.holder = holder
            line.held += 1
            if line.waiting:
                self._expose(line)
        return job

    def settle(self, job: Job) -> None:
        """A job is done, or given up: it is held, or waits after it was taken back."""
        if job.state == "waiting":
            self._count(job, -1)
            if job.line is not None:
                is_first = job.line.waiting[0] is job
                job.line.waiting.remove(job)
                if is_first and job.line.waiting:
                    self._expose(job.line)
        elif job.line is not None:
            self._release(job.line)
        job.state = "gone"
        self._forget_line(job)

    def put_back(self, jobs: Iterable[Job]) -> None:
        """Held jobs wait again, each at its old place."""
        for job in sorted(jobs, reverse=True):
            job.state = "waiting"
            self._count(job, +1)
            if job.line is None:
                heapq.heappush(self._free, job)
            else:
                job.line.waiting.appendleft(job)
                self._release(job.line)
                self._expose(job.line)

    def oldest(self) -> Job | None:
        """The waiting job with the lowest number: the first of its line."""
        heads = [self._head(self._free, None)]
        heads += [self._head(heap, holder) for holder, heap in self._own.items()]
        return min((head for head in heads if head is not None), default=None)

    def leave(self, holder: Hashable) -> None:
        """Nothing is for `holder` any more; what it held has been put back or settled."""
        self._own.pop(holder, None)

    def _next_heap(self, holder: Hashable) -> list[Job] | None:
        own = self._own.get(holder, [])
        free_head, own_head = self._head(self._free, None), self._head(own, holder)
        if free_head is None and own_head is None:
            return None
        if own_head is None or (free_head is not None and free_head < own_head):
            return self._free
        return own

    def _head(self, heap: list[Job], holder: Hashable | None) -> Job | None:
        while heap:
            job = heap[0]
            line = job.line
            if job.state == "waiting" and (
                line is None or (line.waiting[0] is job and line.holder == holder)
            ):
                return job
            heapq.heappop(heap)
        return None

    def _expose(self, line: Line) -> None:
        """The first of a line can be taken, by the one who holds it or by anybody."""
        heap = self._free if line.holder is None else self._own.setdefault(line.holder, [])
        heapq.heappush(heap, line.waiting[0])

    def _release(self, line: Line) -> None:
        line.held -= 1
        if line.held == 0:
            line.holder = None
            if line.waiting:
                self._expose(line)

    def _forget_line(self, job: Job) -> None:
        line = job.line
        if line is not None and not line.waiting and not line.held and job.key is not None:
            self._lines.pop(job.key, None)

    def _count(self, job: Job, sign: int) -> None:
        self._waiting += sign
        self.size_bytes += sign * len(job.data)
