"""All process sets of a run: starts them, listens to them, watches their limits, ends them.

open -> STARTING -> (ids agree) BEGINNING -> IDLE -> dispatch -> BUSY -> IDLE ... -> ENDING -> GONE
`poll` gives what the controller must act on; everything else happens in here.
"""

from __future__ import annotations

import os
import secrets
import selectors
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ci.errors import InfrastructureError
from ci.running.agent import make_order, start_node
from ci.running.channel import Channel, Message, find_free_port, listen, name_address
from ci.running.launcher import Launcher
from ci.running.locks import HELD_VARIABLE, name_held
from ci.running.rankset import Member, RankSet, Shape, State
from ci.running.setwatch import Event, FleetPlan, Happening, check_set
from ci.running.spec import RankSpec
from ci.running.tree import run_mark

WAIT_FOR_AGENTS = 300.0
TORCHRUNS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells its workers itself."""
MIG = "MIG-"


class Fleet:
    """The sets of one run."""

    def __init__(self, plan: FleetPlan, launcher: Launcher) -> None:
        """Listen for ranks; none is started yet."""
        self.plan = plan
        self.sets: list[RankSet] = []
        self._launcher = launcher
        self._token = plan.token or secrets.token_hex(16)
        self._selector = selectors.DefaultSelector()
        self._agents: list[Channel] = []
        self._server = listen(plan.listen or f"unix:{plan.scratch / 'ranks.sock'}")
        self._address = name_address(self._server)
        self._selector.register(self._server, selectors.EVENT_READ, None)
        self._count = 0

    # Life of a set -----------------------------------------------------------------------------

    def open(
        self, shape: Shape, *, start: int, devices: Sequence[str], inherit: Sequence[int] = (), spare: bool = False
    ) -> RankSet:
        """Start the processes of a new set."""
        self._count += 1
        name = f"s{self._count}"
        mark = run_mark(f"{self.plan.run_id}_{name}")
        members = [
            Member(
                rank=rank, log=self.plan.folder / f"rank-{name}-r{rank}.log",
                device=devices[rank] if rank < len(devices) and not shape.dynamic else "",
            )
            for rank in range(shape.processes)
        ]  # fmt: skip
        made = RankSet(
            name=name, shape=shape, start=start, devices=tuple(devices), mark=mark, members=members, spare=spare
        )
        self.sets.append(made)
        port = find_free_port()
        if self.plan.nodes > 1:
            self._start_nodes(made, self._spec(made, members[0], port))
            return made
        for member in members:
            member.process = self._launcher.start(self._spec(made, member, port), inherit=inherit)
        return made

    def wait_for_agents(self) -> None:
        """Wait until every other node has joined; raises `InfrastructureError` when one does not come."""
        end = time.monotonic() + WAIT_FOR_AGENTS
        while len(self._agents) < self.plan.nodes - 1:
            if time.monotonic() > end:
                raise InfrastructureError(
                    f"{len(self._agents)} of {self.plan.nodes - 1} other nodes joined in {WAIT_FOR_AGENTS:g} s",
                    hint=f"on each: LOCKGATE_TOKEN=<secret> python -m ci.running.agent {self.plan.listen}",
                )
            self.poll(1.0)

    def _start_nodes(self, one: RankSet, spec: RankSpec) -> None:
        """Have every node start its share of a set by torchrun; this node's own share too."""
        host = self.plan.listen.rpartition(":")[0]
        own = {name: value for name, value in spec.environ.items() if name not in TORCHRUNS}
        log = str(self.plan.folder / f"rank-{one.name}-r")
        spec = replace(spec, local=False, environ=own, log=log, arguments=spec.arguments[:-1])
        order = make_order(one.name, spec, nodes=self.plan.nodes, endpoint=f"{host}:{find_free_port()}")
        order["mark"] = one.mark
        one.tell = self._tell_agents
        for number, agent in enumerate(self._agents, start=1):
            agent.send({**order, "node": number})
        start_node(order, cwd=Path.cwd(), environ=os.environ)

    def _tell_agents(self, message: Message) -> None:
        for agent in self._agents:
            agent.send(message)

    def begin(self, rank_set: RankSet) -> None:
        """Let a set whose ids agree join its process group."""
        rank_set.spare = False
        rank_set.move(State.BEGINNING)
        rank_set.send({"do": "begin"})

    def dispatch(self, rank_set: RankSet, test: str, attempt: int) -> None:
        """Start a test on an idle set."""
        rank_set.attempt = attempt
        rank_set.dispatch({"do": "run", "test": test, "attempt": attempt, "port": find_free_port()})

    def end(self, rank_set: RankSet) -> None:
        """Have a set tear down what is left and end by itself."""
        if rank_set.state is State.IDLE:
            rank_set.move(State.ENDING)
            rank_set.send({"do": "end"})
        elif rank_set.state is not State.ENDING:
            self.drop(rank_set)

    def drop(self, rank_set: RankSet) -> None:
        """Kill a set and everything that its tests started."""
        for member in rank_set.members:
            self._forget(member)
        rank_set.kill()
        if rank_set in self.sets:
            self.sets.remove(rank_set)

    def close(self) -> None:
        """Kill what is left and stop listening."""
        for rank_set in list(self.sets):
            self.drop(rank_set)
        self._selector.close()
        self._server.close()

    # What happens ------------------------------------------------------------------------------

    def poll(self, most: float) -> list[Happening]:
        """Wait for up to `most` seconds until something happens; gives all that did."""
        for key, _ in self._selector.select(max(0.0, min(most, self._next_deadline()))):
            if key.fileobj is self._server:
                self._accept()
            elif isinstance(key.data, Member):
                self._listen(key.data)
            elif isinstance(key.fileobj, Channel):  # it has not said yet who it is
                self._greet(key.fileobj)
        self._hear_out()
        happened = [check_set(rank_set, self.plan) for rank_set in list(self.sets)]
        told = []
        for happening in filter(None, happened):
            if happening.event is Event.AGREED:
                self.begin(happening.set)
            else:
                told.append(happening)
        return told

    def _hear_out(self) -> None:
        """Take the last words of ranks that have exited since the wait: they tell how it ended."""
        for rank_set in self.sets:
            for member in rank_set.members:
                if member.has_exited and member.channel is not None and not member.channel.closed:
                    for message in member.channel.receive_rest():
                        self._take(member, message)
                    self._forget(member)

    def _accept(self) -> None:
        stream, _ = self._server.accept()
        channel = Channel(stream)
        self._selector.register(channel, selectors.EVENT_READ, None)

    def _greet(self, channel: Channel) -> None:
        messages = channel.receive_ready()
        if not messages and not channel.closed:
            return
        self._selector.unregister(channel)
        hello = messages[0] if messages else {}
        if hello.get("say") == "agent" and secrets.compare_digest(str(hello.get("token", "")), self._token):
            self._agents.append(channel)
            return
        member = self._find(hello) if secrets.compare_digest(str(hello.get("token", "")), self._token) else None
        if member is None:
            channel.close()
            return
        member.channel = channel
        member.pid = int(hello["pid"])
        self._selector.register(channel, selectors.EVENT_READ, member)
        for message in messages[1:]:
            self._take(member, message)

    def _find(self, hello: Message) -> Member | None:
        for rank_set in self.sets:
            for member in rank_set.members:
                if (rank_set.name, member.rank) == (hello.get("set"), hello.get("rank")) and member.channel is None:
                    return member
        return None

    def _listen(self, member: Member) -> None:
        if member.channel is None:
            return
        for message in member.channel.receive_ready():
            self._take(member, message)
        if member.channel.closed:
            self._forget(member)

    def _forget(self, member: Member) -> None:
        if member.channel is not None and member.channel.fileno() in self._selector.get_map():
            self._selector.unregister(member.channel)

    def _take(self, member: Member, message: Message) -> None:
        said = message["say"]
        if said == "collected":
            member.ids = tuple(message["ids"])
            member.errors = tuple(message["errors"])
        elif said == "begun":
            member.begun = message["error"]
        elif said == "answer":
            member.answer = message
            member.answered = time.monotonic()
        elif said == "ended":
            member.ended = message

    def _next_deadline(self) -> float:
        now = time.monotonic()
        ends = [60.0]
        for one in self.sets:
            if one.state is State.BUSY:
                ends.append(one.dispatched + self.plan.test_limit - now)
                if one.grace_end is not None:
                    ends.append(one.grace_end - now)
        return min(ends)

    def _spec(self, one: RankSet, member: Member, port: int) -> RankSpec:
        shape = one.shape
        world = shape.processes
        environ = {
            one.mark: "1", "RANK": str(member.rank), "LOCAL_RANK": str(member.rank), "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world), "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "LOCKGATE_RANK": str(member.rank), "LOCKGATE_DEVICES": ",".join(one.devices),
        }  # fmt: skip
        if shape.dynamic or world == 1:
            # The test starts its own workers, or is alone: what it reads must not name a group that is not there.
            for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
                environ.pop(key)
        if one.devices:
            environ[HELD_VARIABLE] = name_held(os.environ, one.devices)
            environ["CUDA_VISIBLE_DEVICES"] = ",".join(one.devices) if self.plan.masks_devices else ""
        if member.device.startswith(MIG):
            # A process can use one MIG instance only, whatever its mask names.
            environ["CUDA_VISIBLE_DEVICES"] = member.device
            if "LOCAL_RANK" in environ:
                environ["LOCAL_RANK"] = "0"
        temp = self.plan.scratch / f"{one.name}-r{member.rank}"
        return RankSpec(
            set=one.name, rank=member.rank, world=world, address=self._address, token=self._token,
            log=str(member.log), environ=environ, device=member.device,
            arguments=(*self.plan.arguments, f"--basetemp={temp}"),
            backend="" if shape.dynamic or world == 1 else self.plan.backend,
            store=str(self.plan.scratch / f"{one.name}.store"), limit=self.plan.group_limit,
            files=self.plan.files,
        )  # fmt: skip
