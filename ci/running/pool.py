"""Which test runs next, on which devices. Pure.

Tasks of width k take aligned blocks of devices; whoever asks gets the first task
in order that fits what is free (backfill), so nothing is dispatched before its
devices are granted. The order is chosen by trying: `choose_order` simulates three
rules on the recorded durations and takes the shortest.

    tasks -> choose_order -> Scheduler;  next_grant() -> Grant -> (run it) -> release(grant)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True, kw_only=True)
class Task:
    """A test as the pool sees it: how many devices it needs, for how many seconds (an estimate)."""

    id: str
    width: int
    duration: float

    @property
    def area(self) -> float:
        """Device-seconds."""
        return self.width * self.duration


@dataclass(frozen=True, kw_only=True)
class Grant:
    """Devices given to a task: the `width` positions from `start` on."""

    task: Task
    start: int
    place: int = 0
    """Place of the task in the order, so that it can be put back there."""

    @property
    def positions(self) -> range:
        """Positions of the devices in the pool."""
        return range(self.start, self.start + self.task.width)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One bar of a simulated run; times in seconds from its start."""

    grant: Grant
    begin: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A simulated run: the rule that ordered it, its placements, its length in seconds."""

    rule: str
    order: tuple[Task, ...]
    placements: tuple[Placement, ...]
    makespan: float


CLOSE = 1.01
"""Times the lower bound that is good enough to stop looking."""

MENDINGS = 12
"""Most tries of `mend_order`."""

Rule = Callable[[Task], tuple[float, ...]]

RULES: dict[str, Rule] = {
    "area-first": lambda task: (-task.area, -task.width),
    "widest-first": lambda task: (-task.width, -task.duration),
    "longest-first": lambda task: (-task.duration, -task.width),
}
"""The orders that are tried; smaller comes first."""


class Blocks:
    """Which devices of the pool are free.

    A block of width k starts at a multiple of the next power of two, so that
    neighbours (which share the faster links) stay together and the room that is
    left stays usable for other wide tasks.
    """

    def __init__(self, size: int) -> None:
        """Start with all `size` devices free."""
        self.size = size
        self._free = [True] * size
        self._last_width = [0] * size

    @property
    def free_count(self) -> int:
        """Count the free devices."""
        return sum(self._free)

    def find(self, width: int, *, blocked: Collection[int] = ()) -> int | None:
        """Find the start of a free block, or None; `blocked` positions count as taken."""
        step = align(width)
        best: tuple[tuple[int, bool, int], int] | None = None
        for start in range(0, self.size - width + 1, step):
            block = range(start, start + width)
            if not all(self._free[one] and one not in blocked for one in block):
                continue
            # The tightest room first; then a block whose last tenant had the same width, since its
            # processes may still be warm; then the lowest.
            same = all(self._last_width[one] == width for one in block)
            key = (self._room(start, step, blocked), not same, start)
            if best is None or key < best[0]:
                best = (key, start)
        return None if best is None else best[1]

    def take(self, start: int, width: int) -> None:
        """Mark a block as taken."""
        for one in range(start, start + width):
            if not self._free[one]:
                raise ValueError(f"device {one} of the pool is taken already")
            self._free[one] = False
            self._last_width[one] = width

    def give(self, start: int, width: int) -> None:
        """Mark a block as free again."""
        for one in range(start, start + width):
            if self._free[one]:
                raise ValueError(f"device {one} of the pool is free already")
            self._free[one] = True

    def _room(self, start: int, step: int, blocked: Collection[int]) -> int:
        """Size of the largest aligned free block around a block: what taking it would break up."""
        while True:
            wider = step * 2
            left = start - start % wider
            if left + wider > self.size:
                return step  # no wider task ever fits here, which makes this the best place for a narrow one
            if not all(self._free[one] and one not in blocked for one in range(left, left + wider)):
                return step
            step = wider


class Scheduler:
    """Hands out grants: the first task in order that fits what is free now.

    Tasks wider than the pool are never granted; they are in `too_wide` and are an
    infrastructure outcome of the run, not a hang.
    """

    def __init__(self, order: Sequence[Task], size: int) -> None:
        """Queue the tasks in the given order for a pool of `size` devices."""
        self.blocks = Blocks(size)
        self.too_wide = tuple(task for task in order if task.width > size)
        self._queues: dict[int, list[tuple[int, Task]]] = defaultdict(list)
        for position, task in enumerate(order):
            if task.width <= size:
                self._queues[task.width].append((position, task))
        for queue in self._queues.values():
            queue.reverse()

    @property
    def waiting(self) -> int:
        """Count the tasks without a grant."""
        return sum(map(len, self._queues.values()))

    def next_grant(self, *, blocked: Collection[int] = ()) -> Grant | None:
        """Grant devices to the next task that fits, or give None; `blocked` are positions that others hold."""
        heads = sorted((queue[-1][0], width) for width, queue in self._queues.items() if queue)
        for _, width in heads:
            start = self.blocks.find(width, blocked=blocked)
            if start is not None:
                place, task = self._queues[width].pop()
                self.blocks.take(start, width)
                return Grant(task=task, start=start, place=place)
        return None

    def release(self, grant: Grant) -> None:
        """Take a grant's devices back."""
        self.blocks.give(grant.start, grant.task.width)

    def put_back(self, grant: Grant) -> None:
        """Undo a grant, its task in line where it was (its devices turned out to be held by another run)."""
        self.release(grant)
        queue = self._queues[grant.task.width]
        queue.append((grant.place, grant.task))
        queue.sort(key=lambda entry: entry[0], reverse=True)


def align(width: int) -> int:
    """Give the distance of block starts: the next power of two."""
    return 1 << (width - 1).bit_length()


def order_tasks(tasks: Iterable[Task], rule: str) -> tuple[Task, ...]:
    """Order tasks by a rule; equal ones by id, so that the same suite always runs in the same order."""
    key = RULES[rule]
    return tuple(sorted(tasks, key=lambda task: (key(task), task.id)))


def simulate_order(order: Sequence[Task], size: int, *, rule: str = "given") -> Schedule:
    """Play an order through on `size` devices, every task taking exactly its estimate."""
    scheduler = Scheduler(order, size)
    running: list[tuple[float, int, Grant]] = []
    placements: list[Placement] = []
    now = 0.0
    while True:
        while (grant := scheduler.next_grant()) is not None:
            end = now + grant.task.duration
            heappush(running, (end, len(placements), grant))
            placements.append(Placement(grant=grant, begin=now, end=end))
        if not running:
            break
        now = running[0][0]
        while running and running[0][0] <= now:
            scheduler.release(heappop(running)[2])
    makespan = max((placement.end for placement in placements), default=0.0)
    return Schedule(rule=rule, order=tuple(order), placements=tuple(placements), makespan=makespan)


def choose_order(tasks: Collection[Task], size: int) -> Schedule:
    """Simulate every rule, mend what is not close to the bound, give the shortest; the first rule wins a tie."""
    target = CLOSE * lower_bound(tasks, size)
    schedules = [simulate_order(order_tasks(tasks, rule), size, rule=rule) for rule in RULES]
    if min(schedule.makespan for schedule in schedules) > target:
        schedules = [mend_order(schedule, size, target=target) for schedule in schedules]
    return min(schedules, key=lambda schedule: schedule.makespan)


def mend_order(schedule: Schedule, size: int, *, target: float) -> Schedule:
    """Move the task that ends last to the front and try again, until nothing is gained or `target` (s) is met.

    The rules look at one task at a time; this finds the one long narrow task that
    should have started beside the wide ones.
    """
    best = current = schedule
    for _ in range(MENDINGS):
        last = max(current.placements, key=lambda placement: placement.end).grant.task
        if best.makespan <= target or current.order[0] is last:
            break
        order = (last, *(task for task in current.order if task is not last))
        current = simulate_order(order, size, rule=f"{schedule.rule}, mended")
        best = min(best, current, key=lambda one: one.makespan)
    return best


def lower_bound(tasks: Collection[Task], size: int) -> float:
    """Give a time in seconds that no schedule can beat.

    The most of: all device-seconds over the pool; the sum of tasks wider than half
    the pool, of which no two can run at once; and for each width the longest task
    with all those too wide to run beside it (at least the longest task).
    """
    fitting = [task for task in tasks if task.width <= size]
    bound = max(
        sum(task.area for task in fitting) / size,
        sum(task.duration for task in fitting if 2 * task.width > size),
    )
    longest: dict[int, float] = {}
    for task in fitting:
        longest[task.width] = max(longest.get(task.width, 0.0), task.duration)
    for width, duration in longest.items():
        beside = sum(task.duration for task in fitting if task.width > size - width) if 2 * width <= size else 0.0
        bound = max(bound, duration + beside)
    return bound
