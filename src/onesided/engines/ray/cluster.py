"""The nodes of a Ray cluster, and calls on them.

What is refused:

=====================================================  ========================================================
found                                                  message
=====================================================  ========================================================
Ray is not installed                                   engine='ray' needs Ray …: pip install 'onesided[cluster]'
a cluster that cannot be reached                       there is no Ray cluster at 10.0.0.1:6379 …
another cluster than the one in use                    … is connected to 10.0.0.1:6379, not to …
no node with a processor                               no node of the Ray cluster has a processor …
a panel of a cluster that was left                     this process is no longer connected to the cluster …
``device="cuda"`` and no node with a GPU               device='cuda': no node of the Ray cluster has a GPU …
``device="cuda:1"``                                    … on a cluster 'cuda' is all of its GPUs
a task that fails                                      what it found, with the rows that it was working on
=====================================================  ========================================================
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from functools import partial, reduce
from itertools import groupby, islice
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import numpy as np
import ray
from ray.exceptions import ActorUnschedulableError, ObjectLostError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from onesided.engines.threads import THREADS_VARIABLE
from onesided.errors import InputError, counted, warn

Ref = Any  # of an object in Ray's store
Add = Callable[[Any, Any], Any]

FAN_IN = 4  # results that are added up at a time
GPU = "cuda"  # as torch calls it
SENT_ALONG = 1 << 16  # bytes that go with every call rather than through the store
PATIENCE = 60  # seconds without results, after which a warning is given
LOOKED_AT = 1.0  # seconds between looks at which nodes are alive

DEAD = (RayActorError, ActorUnschedulableError)  # of an actor, or of the node that it was to be on


class Node(NamedTuple):
    """A machine of the cluster."""

    id: str
    cpus: int
    gpus: int


class Slot(NamedTuple):
    """Where a shard can be worked on: a node or, if ``gpu`` is given, one of the node's GPUs."""

    node: str
    gpu: int | None = None


class Cluster:
    """A Ray cluster: its nodes, where shards are to lie, and calls that are made there.

    Calls are Ray's tasks, tried again for as long as workers and nodes die.
    """

    def __init__(self) -> None:
        self.here, self._session = ray.get_runtime_context().get_node_id(), _session()
        self.look()
        self.worked, self.seconds, self.lost, self._retries = 0, 0.0, 0, 0
        self._warned_of_waiting = False
        self.gpu, self.gone = GPU, set[Slot]()
        self._holders: dict[Slot, Any] = {}
        self._again = _Again.options(  # type: ignore[attr-defined]
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(self.here, soft=False), max_restarts=-1
        ).remote()

    def look(self) -> None:
        """See which nodes there are."""
        alive = [(node["NodeID"], node["Resources"]) for node in ray.nodes() if node["Alive"]]
        nodes = [Node(id_, int(has.get("CPU", 0)), int(has.get("GPU", 0))) for id_, has in alive]
        self.nodes = sorted(nodes, key=lambda node: (node.id != self.here, node.id))
        # As many for a task as the smallest node has; results do not depend on it.
        self.threads = min((node.cpus for node in self.nodes if node.cpus > 0), default=1)
        self._looked = time.monotonic()

    def slots(self, device: str = "cpu") -> list[Slot]:
        """A slot for each shard that can be worked on at a time, those of a node together; this one's first.

        With the device "cuda", all GPUs of the cluster; with "auto", too, if there are any.
        """
        if device not in ("cpu", "cuda", "auto"):
            raise InputError(f"device={device!r}: on a cluster 'cuda' is all of its GPUs; pass that, 'auto' or 'cpu'")
        gpus = [Slot(node.id, k) for node in self.nodes for k in range(node.gpus)]
        if gpus and device != "cpu":
            return gpus
        if device == "cuda":
            raise InputError(
                "device='cuda': no node of the Ray cluster has a GPU to offer (num_gpus); pass device='cpu'"
            )
        slots = [Slot(node.id) for node in self.nodes for _ in range(node.cpus // self.threads)]
        if not slots:
            raise InputError(
                "no node of the Ray cluster has a processor to offer (num_cpus); start one that has: ray start "
                "--address=…"
            )
        return slots

    def alive(self) -> set[str]:
        """The nodes there are, as they were a moment ago."""
        if time.monotonic() - self._looked > LOOKED_AT:
            self.look()
        return {node.id for node in self.nodes}

    def retries(self) -> int:
        """Calls that were made again because a worker, or a node, was lost."""
        self._check()
        with suppress(RayActorError):  # counting begins anew
            self._retries = ray.get(self._again.count.remote())
        return self._retries + self.lost

    def throughput(self) -> str:
        """How fast passes go, and how many calls had to be made again."""
        speed = self.worked / max(self.seconds, 1e-9)
        return f"{speed / 1e6:,.1f} million entries/s, {counted(self.retries(), 'retry', 'retries')}"

    def call(self, node: str, task: Callable[..., Any], *arguments: Any, returns: int = 1, light: bool = False) -> Any:
        """Have a task done on a node, or where there is room if it is gone; a light one needs no processor."""
        self._check()
        options = self.options(node) | {"num_cpus": 0 if light else self.threads, "num_returns": returns}
        return _done.options(**options).remote(self._again, self.threads, task, *arguments)

    def spread_out(self, task: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """A function that has a task done by one processor, wherever there is room if the options do not say where."""
        there = _done.options(**({"num_cpus": 1, "scheduling_strategy": "SPREAD"} | options))
        return partial(there.remote, self._again, 1, task)

    def _check(self) -> None:
        if not ray.is_initialized() or _session() != self._session:
            raise InputError("this process is no longer connected to the cluster that holds the panel; read it again")

    def options(self, node: str) -> dict[str, Any]:
        """Options of Ray for a task on a node, as long as that is alive."""
        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True)}

    def shared(self, job: Any) -> Any:
        """An argument of several calls: in the store, from which a node fetches it once, or as it is if small."""
        self._check()
        return ray.put(job) if _size(job) > SENT_ALONG else job

    def held(self, slot: Slot, *arguments: Any) -> Ref:
        """Have the actor of a GPU do a task with rows that it keeps."""
        from onesided.engines.ray.gpu_actors import Holder

        if slot not in self._holders:
            there = NodeAffinitySchedulingStrategy(slot.node, soft=False)
            self._holders[slot] = Holder.options(scheduling_strategy=there).remote(self.gpu)  # type: ignore[attr-defined]
        return self._holders[slot].run.remote(*arguments)

    def forget(self, shards: Iterable[Any]) -> None:
        """Have actors let go of shards."""
        if ray.is_initialized() and _session() == self._session:
            for actor in self._holders.values():
                for shard in shards:
                    actor.forget.remote(shard)

    def retrying(self, work: Callable[[], Any]) -> Any:
        """The result of some work, done again as often as it fails because an actor has died."""
        while True:
            try:
                return work()
            except DEAD:
                self._let_go()

    def _let_go(self) -> None:
        """Of the actors that are dead."""
        self.lost += 1
        answers = {slot: actor.forget.remote(None) for slot, actor in self._holders.items()}
        for slot, answer in answers.items():
            try:
                ray.get(answer)
            except DEAD:
                self.gone.add(slot)
                del self._holders[slot]

    def added(self, results: Sequence[Ref], homes: Sequence[str], planned: Sequence[str], add: Add) -> Any:
        """The sum of results that lie on nodes: of those planned for one node first, then of nodes, and here at last.

        What is added to what follows from the plan alone, and not from where results really lie.
        """
        by_node = groupby(range(len(results)), key=lambda k: planned[k])
        pairs = [(results[k], homes[k]) for k in range(len(results))]
        tops = [self._folded([pairs[k] for k in members], add, 1) for _, members in by_node]
        last = self._folded([top for (top,) in tops], add, FAN_IN)
        return owned(reduce(add, self.fetched([result for result, _ in last])))

    def _folded(self, pairs: list[tuple[Ref, str]], add: Add, most: int) -> list[tuple[Ref, str]]:
        """Results added, some at a time, until there are at most so many."""
        while len(pairs) > most:
            groups = [pairs[k : k + FAN_IN] for k in range(0, len(pairs), FAN_IN)]
            pairs = [
                group[0]
                if len(group) == 1
                else (self.call(group[0][1], _sum, add, *(result for result, _ in group), light=True), group[0][1])
                for group in groups
            ]
        return pairs

    def fetched(self, results: Any) -> Any:
        """Results of calls; the first time that they are long in coming, warn of what may be the reason."""
        if not self._warned_of_waiting:
            waited = results if isinstance(results, list) else [results]
            _, missing = ray.wait(waited, num_returns=len(waited), timeout=PATIENCE)
            if missing:
                free, all_there = (look().get("CPU", 0) for look in (ray.available_resources, ray.cluster_resources))
                warn(
                    f"for {PATIENCE} s {counted(len(missing), 'result')} of the cluster did not come: work is under "
                    f"way, or waits for {counted(self.threads, 'processor')} of a node ({free:g} of {all_there:g} in "
                    "all are free), which other work on the cluster may hold; ray status tells"
                )
                self._warned_of_waiting = True
        return fetched(results)

    def windowed(self, calls: Sequence[Callable[[], Ref]]) -> Iterator[Any]:
        """The results of calls in order, of which not many more are under way than can be worked on."""
        running, to_come, most = deque[Ref](), iter(calls), len(self.slots("auto")) + 1
        for call in calls:
            running.extend(other() for other in islice(to_come, most - len(running)))
            yield self._result(running.popleft(), call)

    def _result(self, result: Ref, call: Callable[[], Ref]) -> Any:
        try:
            return self.fetched(result)
        except DEAD:
            self._let_go()
            return self.retrying(lambda: self.fetched(call()))


def current() -> Cluster:
    """The cluster that this process is connected to: the same object as long as it is."""
    connect()
    here = _session()
    if here not in _current:
        _current.clear()
        _current[here] = Cluster()
    _current[here].look()
    _current[here].gone.clear()
    return _current[here]


_current: dict[str, Cluster] = {}


def _session() -> str:
    """The identity of this process's connection to a cluster."""
    context = ray.get_runtime_context()
    return f"{context.get_node_id()} {context.get_job_id()}"


def connect(address: str | None = None) -> None:
    """Connect this process to the cluster at an address, unless it is connected; without one, to what Ray finds.

    Ray finds the cluster of ``RAY_ADDRESS`` or one that runs on this machine, and starts one here where there is none.
    """
    if ray.is_initialized():
        there = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", there):
            raise InputError(f"this process is connected to {there}, not to {address}; disconnect: ray.shutdown()")
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = address or os.environ.get("RAY_ADDRESS") or "this machine"
        raise InputError(
            f"there is no Ray cluster at {where} ({str(error).splitlines()[0]}); start one with ray start --head, or "
            "give the address of one that runs"
        ) from error


def fetched(results: Any) -> Any:
    """Results of tasks; what a task refused is raised as if it had been refused here."""
    try:
        return ray.get(results)
    except (RayTaskError, ObjectLostError) as error:
        cause: Any = error
        while isinstance(cause, RayTaskError):
            cause = cause.cause
        if isinstance(cause, InputError):
            raise copy(cause) from None
        if isinstance(cause, ObjectLostError):
            reason = f"{type(cause).__name__}: {str(cause).splitlines()[0]}"
            raise InputError(
                f"the cluster lost rows and could not make them again ({reason}); see that what the panel was made of "
                "can still be read, and fit again"
            ) from error
        raise


def owned(result: Any) -> Any:
    """A result whose arrays can be written to: those of the store are copied."""
    if isinstance(result, tuple):
        members = [owned(member) for member in result]
        return type(result)(*members) if hasattr(result, "_fields") else tuple(members)
    return result.copy() if isinstance(result, np.ndarray) and not result.flags.writeable else result


def _size(job: Any) -> float:
    """The bytes of arrays in a job; infinite where it is not known what is in it.

    >>> from functools import partial
    >>> _size(partial(max, np.zeros(10))), _size((1, None, "one", {"two": np.zeros(2)})), _size(Node("a", 1, 0))
    (80, 16, 0)
    >>> of_unknown_size = np.zeros(10)
    >>> _size(lambda: of_unknown_size), _size(_size)
    (inf, 0)
    """
    if isinstance(job, np.ndarray):
        return job.nbytes
    if isinstance(job, partial):
        return _size((job.func, job.args, job.keywords))
    if isinstance(job, dict):
        return sum(map(_size, job.values()))
    if isinstance(job, (tuple, list)):
        return sum(map(_size, job))
    plain = job is None or isinstance(job, (bool, int, float, str, np.generic, BuiltinFunctionType))
    return 0 if plain or (isinstance(job, FunctionType) and job.__name__ in job.__globals__) else np.inf


@ray.remote
class _Again:
    """Counts tasks that were begun again."""

    def __init__(self) -> None:
        self._begun = 0

    def begun(self) -> None:
        self._begun += 1

    def count(self) -> int:
        return self._begun


@ray.remote(max_retries=-1)
def _done(again: Any, threads: int, task: Callable[..., Any], *arguments: Any) -> Any:
    if _attempt() > 0:
        again.begun.remote()
    os.environ[THREADS_VARIABLE] = str(threads)
    return task(*arguments)


def _attempt() -> int:
    """How often the task that runs here was begun before: no public interface of Ray tells, up to 2.60."""
    return int(ray._private.worker.global_worker.core_worker.get_current_task_attempt_number())


def _sum(add: Add, *results: Any) -> Any:
    return reduce(add, results)
