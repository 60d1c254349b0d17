"""Clients of a cluster: each does random things and writes down what it saw.

A client asks the address in front of the replicas, or a replica that it chooses. When an answer
does not come, it asks again, under the same message id: the first answer may have been lost only.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress

from tests.crash.gateway_process import Endpoint, Json, NoStream
from tests.replicas.cluster import PEERS, Cluster, peer_token
from tests.replicas.history import (
    COMPLETED,
    PAUSED,
    TERMINAL,
    Call,
    Final,
    Frame,
    Got,
    History,
    Listed,
    MessageKey,
    Objective,
    Read,
    Sent,
    state_of,
    status_of,
)

STORY_DEADLINE_S = 600.0
"""Far longer than all faults together that one story can meet on a busy machine."""
TRY_S = 20.0
"""After so long a client asks somebody else."""
PAUSE_S = 0.05
_READERS = 4
"""How many tasks of a peer are read at once in the end."""
MANY = 10**9
_TEMPORARY = (-32000, -32603, 0, "A2A_STOPPING")
"""Codes of overload, of a gateway that stops, of a store that is away; 0: no JSON-RPC at all."""
ASKER = "agent:asker:main"

now = time.monotonic


class Progress:
    """How many new tasks were asked for: for clients until when, for faults when.

    Neither follow-ups nor direct answers, calls and plans count.
    """

    def __init__(self, goal: int) -> None:
        self.begun = 0
        self.goal = goal
        self._grown = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self.begun >= self.goal

    def add(self) -> None:
        self.begun += 1
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    async def wait(self, count: int) -> None:
        while self.begun < count:
            await self._grown.wait()


class Client:
    """One user of one peer."""

    def __init__(
        self, cluster: Cluster, history: History, progress: Progress, number: int, seed: str
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._progress = progress
        self.peer = PEERS[number % len(PEERS)]
        self._number = number
        self._steps = 0
        self._chance = random.Random(f"{seed} client {number}")
        self.front_port = cluster.front_port

    async def play(self) -> None:
        """One story after the other until enough tasks were begun."""
        alone = () if self._cluster.has_plans else (Client.run_plan,)
        stories = [(story, weight) for story, weight in STORIES.items() if story not in alone]
        weights = [weight for _, weight in stories]
        while not self._progress.is_over:
            [(story, _)] = self._chance.choices(stories, weights)
            self._steps += 1
            try:
                async with asyncio.timeout(STORY_DEADLINE_S):
                    await story(self)
            except TimeoutError:
                name = getattr(story, "__name__", "")
                self._history.problems.append(f"client {self._number} waited in vain: {name}")

    # ------------------------------------------------------------ one request

    def _endpoint(self, *, other_than: int = 0) -> Endpoint:
        """The address in front, or a replica; another one than before where that is wanted."""
        ports = [self.front_port, *(replica.port for replica in self._cluster.replicas)]
        chosen = self._chance.choice([port for port in ports if port != other_than] or ports)
        return Endpoint(chosen, f"Authorization: Bearer {peer_token(self.peer)}")

    async def _call(self, account: str, method: str, params: Json) -> Json:
        """`{"result": ...}` or `{"error": ...}`; asked again until one of them is final."""
        while True:
            answer = await self._try_call(self._endpoint(), account, method, params)
            if answer:
                return answer
            await asyncio.sleep(PAUSE_S)  # replicas tell nobody when they are back

    async def _try_call(self, endpoint: Endpoint, account: str, method: str, params: Json) -> Json:
        try:
            async with asyncio.timeout(TRY_S):
                answer = await endpoint.call(account, method, params)
        except OSError:
            return {}
        is_temporary = answer.get("error", {}).get("code") in _TEMPORARY
        return {} if is_temporary else answer

    # ------------------------------------------------------------ messages

    def _draft(self, text: str, account: str, *, context_id: str = "", task_id: str = "") -> Json:
        """A new message. Message ids of two peers may be the same; they mean nothing together."""
        if not task_id and account != "hybrid":
            self._progress.add()
        self._steps += 1
        name = f"m-{self._number // len(PEERS)}-{self._steps}"
        context_id = context_id or f"c-{self._number // len(PEERS)}-{self._steps}"
        message: Json = {"messageId": name, "role": "ROLE_USER", "parts": [{"text": text}]}
        message |= {"taskId": task_id} if task_id else {"contextId": context_id}
        return {"message": message, "account": account, "contextId": context_id}

    def _begin(self, draft: Json) -> Sent:
        message = draft["message"]
        key = MessageKey(self.peer, draft["account"], message["messageId"])
        sent = Sent(key, draft["contextId"], now(), task_id=message.get("taskId"))
        self._history.sent.append(sent)
        return sent

    async def _send(self, draft: Json, *, waits: bool, endpoint: Endpoint | None = None) -> Json:
        """The outcome of a message, sent until it has one."""
        configuration = {"returnImmediately": not waits}
        params = {"message": draft["message"], "configuration": configuration}
        while True:
            sent = self._begin(draft)
            answer = await self._try_call(
                endpoint or self._endpoint(), draft["account"], "SendMessage", params
            )
            endpoint = None
            sent.ended = now()
            if answer:
                sent.outcome = answer.get("result") or {"error": answer["error"]}
                return sent.outcome
            await asyncio.sleep(PAUSE_S)  # replicas tell nobody when they are back

    async def _stream(self, draft: Json, *, leave_after: int = MANY) -> Json:
        """Send and follow to the end, each time from another replica where the stream breaks off.

        After `leave_after` events the client leaves by itself, once.
        """
        account, params = draft["account"], {"message": draft["message"]}
        while True:
            sent, endpoint = self._begin(draft), self._endpoint()
            read = Read("", sent.began)
            stream = endpoint.stream(account, "SendStreamingMessage", params)
            code = await self._take(read, stream, leave_after=leave_after)
            sent.ended = read.frames[0].at if read.frames else now()
            if read.frames:
                sent.outcome = read.frames[0].event
                if sent.accepted_task is None:
                    return sent.outcome  # a direct answer
                read.task_id = sent.accepted_task
                self._history.reads.append(read)
                return await self._follow(account, read, other_than=endpoint.port)
            if code not in _TEMPORARY:
                sent.outcome = {"error": {"code": code}}
                return sent.outcome
            await asyncio.sleep(PAUSE_S)  # replicas tell nobody when they are back

    async def _take(
        self, read: Read, stream: AsyncGenerator[tuple[int, Json]], *, leave_after: int = MANY
    ) -> int:
        """Read until the stream breaks off, the gateway ends it, or the task pauses.

        The code of the error that came in its place; 0 for none.
        """
        try:
            async with aclosing(stream), asyncio.timeout(TRY_S):
                async for sequence, event in stream:
                    read.frames.append(Frame(now(), sequence, event))
                    # The stream of a paused task stays open.
                    if len(read.frames) >= leave_after or state_of(event) == PAUSED:
                        return 0
                read.ended = now()
        except NoStream as refusal:
            return refusal.code
        except OSError:
            pass
        finally:
            read.left = now()
        return 0

    async def _subscribe(self, account: str, task_id: str) -> None:
        """Follow a task from its present state to its end."""
        while True:
            endpoint, read = self._endpoint(), Read(task_id, now())
            stream = endpoint.stream(account, "SubscribeToTask", {"id": task_id})
            code = await self._take(read, stream)
            if read.frames:
                self._history.reads.append(read)
                await self._follow(account, read, other_than=endpoint.port)
                return
            if code not in _TEMPORARY:
                return  # the task is over, and without a Last-Event-ID there is nothing to stream
            await asyncio.sleep(PAUSE_S)  # replicas tell nobody when they are back

    async def _follow(self, account: str, read: Read, *, other_than: int) -> Json:
        """The task when it has ended or paused; its stream is resumed at another replica."""
        state, last = _last_state(read), read.frames[-1].sequence
        while state not in (*TERMINAL, PAUSED):
            endpoint = self._endpoint(other_than=other_than)
            read = Read(read.task_id, now(), last)
            params = {"id": read.task_id}
            stream = endpoint.stream(account, "SubscribeToTask", params, last_event_id=last)
            code = await self._take(read, stream)
            if read.frames or read.ended is not None:
                self._history.reads.append(read)
            if code not in _TEMPORARY:
                self._history.problems.append(
                    f"the stream of task {read.task_id} after {last} was refused with {code}"
                )
                break
            if not read.frames:
                await asyncio.sleep(PAUSE_S)  # replicas tell nobody when they are back
                continue
            state, last = _last_state(read) or state, read.frames[-1].sequence
            other_than = endpoint.port
        return {"task": await self._get(account, read.task_id)}

    async def _get(self, account: str, task_id: str, *, method: str = "GetTask") -> Json:
        """The task, or nothing where it is not found; written down."""
        began = now()
        answer = await self._call(account, method, {"id": task_id})
        is_cancel = method == "CancelTask"
        outcome = {"task": answer["result"]} if "result" in answer else {"error": answer["error"]}
        got = Got(self.peer, account, task_id, began, now(), outcome, is_cancel)
        self._history.got.append(got)
        return outcome.get("task")

    async def _wait(self, account: str, task_id: str) -> Json:
        """The task once it has ended or paused, asked for again and again."""
        while True:
            task = await self._get(account, task_id)
            if task is None or task["status"]["state"] in (*TERMINAL, PAUSED):
                return task
            await asyncio.sleep(self._chance.uniform(PAUSE_S, 5 * PAUSE_S))  # a client that polls

    def _any_account(self) -> str:
        return self._chance.choice(["default", "fragile"])

    def _any_text(self) -> str:
        chance = self._chance
        return chance.choice(
            [
                "hello",
                f"slow {chance.choice([5, 50, 300, 1500])}",
                f"chunks {chance.randrange(1, 40)} {chance.choice([0, 50, 400, 2000, 6000])}",
                "fail",
            ]
        )

    # ------------------------------------------------------------ stories

    async def send_and_wait(self) -> None:
        await self._send(self._draft(self._any_text(), self._any_account()), waits=True)

    async def send_and_poll(self) -> None:
        account = self._any_account()
        outcome = await self._send(self._draft(self._any_text(), account), waits=False)
        if "task" in outcome:
            await self._wait(account, outcome["task"]["id"])

    async def stream_and_resume(self) -> None:
        draft = self._draft(f"chunks {self._chance.randrange(5, 60)} 600", self._any_account())
        await self._stream(draft, leave_after=self._chance.choice([1, 3, 10, MANY]))

    async def subscribe_elsewhere(self) -> None:
        """Two readers of one task, neither of which sent it."""
        account = self._any_account()
        outcome = await self._send(self._draft("chunks 30 800", account), waits=False)
        if "task" in outcome:
            task_id = outcome["task"]["id"]
            await asyncio.gather(*(self._subscribe(account, task_id) for _ in range(2)))

    async def send_twice_at_once(self) -> None:
        draft = self._draft(self._any_text(), self._chance.choice(["default", "fragile", "hybrid"]))
        first = self._endpoint()
        second = self._endpoint(other_than=first.port)
        await asyncio.gather(
            self._send(draft, waits=self._chance.random() < 0.5, endpoint=first),
            self._send(draft, waits=self._chance.random() < 0.5, endpoint=second),
        )
        await self._send(draft, waits=True)

    async def talk(self) -> None:
        """Several messages to one session, at once or each when the one before was accepted."""
        account = self._any_account()
        context_id = f"talk-{self._number // len(PEERS)}-{self._steps}"
        texts = self._chance.choices(["slow 300", "chunks 20 500", "hello"], k=4)
        drafts = [self._draft(text, account, context_id=context_id) for text in texts]
        if self._chance.random() < 0.5:
            sends = [self._send(draft, waits=False) for draft in drafts]
            outcomes = list(await asyncio.gather(*sends))
        else:
            outcomes = [await self._send(draft, waits=False) for draft in drafts]
        await self._list(account, context_id)
        for outcome in outcomes:
            if "task" in outcome:
                await self._wait(account, outcome["task"]["id"])

    async def add_to_a_running_task(self) -> None:
        """Two messages to one task; the second one waits for the run of the first."""
        account = self._any_account()
        first = self._draft("chunks 20 500", account)
        outcome = await self._send(first, waits=False)
        if "task" in outcome:
            task_id = outcome["task"]["id"]
            context_id = first["contextId"]
            more = self._draft("slow 200", account, context_id=context_id, task_id=task_id)
            await self._send(more, waits=False)
            await self._wait(account, task_id)

    async def ask_and_answer(self) -> None:
        account = self._any_account()
        outcome = await self._stream(self._draft("ask", account))
        task = outcome.get("task")
        if task is None or task["status"]["state"] != PAUSED:
            return
        if self._chance.random() < 0.2:
            await self._get(account, task["id"], method="CancelTask")
            return
        draft = self._draft("yes", account, context_id=task["contextId"], task_id=task["id"])
        await self._send(draft, waits=self._chance.random() < 0.5)
        await self._wait(account, task["id"])

    async def cancel(self) -> None:
        """Cancel until the task has ended: a refusal may come from a gateway that leaves."""
        account = self._any_account()
        outcome = await self._send(self._draft("hang", account), waits=False)
        if "task" not in outcome:
            return
        task = outcome["task"]
        await asyncio.sleep(self._chance.choice([0, 0.05, 0.5]))  # before, while and after it began
        while task is not None and task["status"]["state"] not in TERMINAL:
            if await self._get(account, task["id"], method="CancelTask") is None:
                await asyncio.sleep(PAUSE_S)  # replicas tell nobody when they are back
            task = await self._get(account, task["id"])

    async def ask_directly(self) -> None:
        await self._send(self._draft("slow 20", "hybrid"), waits=True)

    async def look_at_others(self) -> None:
        """Ask for a task of the other peer."""
        others = [sent for sent in self._history.sent[-50:] if sent.key.caller != self.peer]
        tasks = [(one.key.account, one.accepted_task) for one in others if one.accepted_task]
        if tasks:
            account, task_id = self._chance.choice(tasks)
            await self._get(account, task_id)

    async def _list(self, account: str, context_id: str) -> None:
        began = now()
        params = {"contextId": context_id, "pageSize": 100}
        answer = await self._call(account, "ListTasks", params)
        task_ids = [task["id"] for task in answer["result"]["tasks"]]
        self._history.listed.append(Listed(self.peer, account, context_id, began, task_ids))

    # ------------------------------------------------------------ calls and plans

    async def call_agent(self) -> None:
        """A call between agents; what the session gets is written down by its host."""
        chance = self._chance
        kind = chance.choices(["answer", "fail", "never"], [8, 1, 1])[0]
        given = {
            "ms": 60_000 if kind == "never" else chance.choice([0, 20, 300]),
            "how": kind,
            "number": self._steps,
        }
        request = {
            "agent": "worker",
            "skill": "work",
            "input": given,
            "timeout": chance.choice([50, 500]) if kind == "never" else 120_000,
            "wait": chance.random() < 0.3,
        }
        answer: Json = {}
        while "correlationId" not in answer:
            answer = await self._use_tool("agent_call", request)
        call = Call(answer["correlationId"])
        self._history.calls.append(call)
        if answer["status"] != "pending":
            self._cluster.host.put(answer)  # the result of a tool is in the session, too
        elif chance.random() < 0.5:
            asked = {"correlationId": call.id}
            while answer.get("status") in (None, "pending", "working"):
                answer = await self._use_tool("agent_poll", asked)
            # A late answer is told to who asks, and not delivered.
            call.polled, call.is_late = answer, answer["status"] == "completed" and kind == "never"

    async def _use_tool(self, name: str, request: Json) -> Json:
        """The answer of some replica; nothing when there was none."""
        endpoint = Endpoint(
            self._endpoint().port,
            f"Authorization: Bearer {self._cluster.tool_token}",
            "X-OpenClaw-Agent-Id: asker",
            f"X-OpenClaw-Session-Key: {ASKER}",
        )
        try:
            async with asyncio.timeout(TRY_S):
                body = json.dumps(request).encode()
                return json.loads(await endpoint.request("POST", f"/tools/{name}", body))
        except (OSError, ValueError):
            return {}
        finally:
            await asyncio.sleep(PAUSE_S)  # a client that polls

    async def run_plan(self) -> None:
        """A diamond of four steps."""
        prefix = f"plan-{self._number}-{self._steps}"
        names = [f"{prefix}-{step}" for step in ("dig", "stone", "wood", "wall")]
        needed = [[], [0], [0], [1, 2]]
        tasks = [
            {
                "name": name,
                "dependencies": [f"task-{one}" for one in before],
                "metadata": {"retries": 50},  # a run that is killed three times is given up
            }
            for name, before in zip(names, needed, strict=True)
        ]
        made = (await self._call("default", "objectives/create", {"name": prefix}))["result"]
        objective_id = made["objective"]["id"]
        wanted = {"objectiveId": objective_id, "name": "plan", "tasks": tasks}
        await self._call("default", "plans/create", wanted)
        await self._call("default", "objectives/run", {"id": objective_id})
        shown: Json = {}
        while shown.get("status") not in ("completed", "failed", "canceled"):
            await asyncio.sleep(2 * PAUSE_S)  # a client that polls
            answer = await self._call("default", "objectives/get", {"id": objective_id})
            if "error" in answer:
                self._history.problems.append(f"objective {objective_id}: {answer['error']}")
                return
            shown = answer["result"]["objective"]
        status = COMPLETED if shown["status"] == "completed" else shown["status"]
        steps = {
            name: [names[one] for one in before] for name, before in zip(names, needed, strict=True)
        }
        objective = Objective(objective_id, status, steps, len(shown["plans"]))
        self._history.objectives.append(objective)

    # ------------------------------------------------------------ the end

    async def read_finals(self, tasks: Sequence[tuple[str, str]]) -> None:
        """Every task (account and id) as it is now, with its events read through two replicas."""
        left = iter(tasks)

        async def read_some() -> None:
            for account, task_id in left:
                answer = await self._call(account, "GetTask", {"id": task_id})
                if "result" not in answer:
                    continue  # the checker sees that it is gone
                task = answer["result"]
                journals = [await self._journal(account, task) for _ in range(2)]
                self._history.finals[task_id] = Final(self.peer, account, task, *journals)

        await asyncio.gather(*(read_some() for _ in range(_READERS)))

    async def _journal(self, account: str, task: Json) -> list[Json]:
        """All events of a task at rest."""
        while True:
            read = Read(task["id"], now(), 0)
            params = {"id": task["id"]}
            stream = self._endpoint().stream(account, "SubscribeToTask", params, last_event_id=0)
            # A paused task may have paused before: its status says where it is now.
            await self._take_until(task["status"], read, stream)
            if read.ended is not None:
                return [frame.event for frame in read.frames]
            await asyncio.sleep(PAUSE_S)  # replicas tell nobody when they are back

    async def _take_until(
        self, status: Json, read: Read, stream: AsyncGenerator[tuple[int, Json]]
    ) -> None:
        is_over = status["state"] in TERMINAL
        with suppress(OSError, NoStream):
            async with aclosing(stream), asyncio.timeout(TRY_S):
                async for sequence, event in stream:
                    read.frames.append(Frame(now(), sequence, event))
                    # The stream of a task that has not ended stays open.
                    if not is_over and status_of(event) == status:
                        break
                read.ended = now()


def _last_state(read: Read) -> str:
    """The last state that a reader saw; empty for none."""
    states = [state for frame in read.frames if (state := state_of(frame.event))]
    return states[-1] if states else ""


STORIES: dict[Callable[[Client], Awaitable[None]], int] = {
    Client.send_and_wait: 4,
    Client.send_and_poll: 4,
    Client.stream_and_resume: 4,
    Client.subscribe_elsewhere: 2,
    Client.send_twice_at_once: 3,
    Client.talk: 2,
    Client.add_to_a_running_task: 2,
    Client.ask_and_answer: 3,
    Client.cancel: 3,
    Client.ask_directly: 1,
    Client.look_at_others: 1,
    Client.call_agent: 2,
    Client.run_plan: 1,
}
"""What clients do, and how often."""
