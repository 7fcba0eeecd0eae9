"""Two engines that batch what is in flight, in simulated time: what a draft length gains, without noise or waiting.

A step takes in every call that is there when it begins, as an engine with in-flight batching does; a call that comes
later waits for the next one. Engines on one machine slow each other down while both work. Each request is a closed
loop, as in the orchestrator: draft, verify, go on; a new request takes the place of one that has ended.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from trt_spec.serve.drafting import RoundOutcome

CALL_S = 0.0006  # between the engine's last step and the orchestrator's next call, each way


@dataclass(frozen=True)
class Machine:
    """Seconds of a step by sequences and by tokens in all; ``shared``: both engines use the same processor."""

    target_step_s: Callable[[int, int], float]
    draft_step_s: Callable[[int, int], float]
    shared: bool
    chunk_tokens: int = 128


def cpu_step_s(rows, tokens):
    """SmolLM2 in fp32 on two cores, as measured: 1 token 23.7 ms, 5 of one sequence 25.3, 8 of eight 30.6, 40 67."""
    return 0.0237 + 0.0004 * min(tokens - 1, 7) + 0.00126 * max(0, tokens - 8) + 0.00058 * (rows - 1)


def cpu_draft_step_s(rows, tokens):
    """The int8 draft: 7.8 ms, eight sequences 16.4; prompts cost by the token."""
    return 0.0078 + 0.00123 * (tokens - 1)


CPU = Machine(cpu_step_s, cpu_draft_step_s, shared=True)
GPU = Machine(
    lambda rows, tokens: 0.020 + 0.00004 * tokens + 0.0001 * rows,
    lambda rows, tokens: 0.0025 + 0.00001 * tokens + 0.00002 * rows,
    shared=False,
    chunk_tokens=2048,
)


@dataclass(eq=False)
class Call:
    prefill: int  # tokens to read before the first one comes out
    steps: int  # steps that each give a token; a verification is one step
    tokens: int  # tokens fed in each of them
    done: Callable[[], None]


class Engine:
    def __init__(self, simulation, step_s, chunk_tokens):
        self.simulation, self.step_s, self.chunk_tokens = simulation, step_s, chunk_tokens
        self.calls, self.fed = [], []
        self.work_s = None  # what is left of the step that runs
        self.steps = 0

    def submit(self, call):
        self.calls.append(call)
        if self.work_s is None:
            self.begin()

    def begin(self):
        self.fed, tokens, chunk = [], 0, self.chunk_tokens
        for call in self.calls:
            share = min(call.prefill, chunk)
            chunk -= share
            if call.prefill and not share:
                continue
            self.fed.append((call, share))
            tokens += share or call.tokens
        if self.fed:
            self.work_s = self.step_s(len(self.fed), tokens) * self.simulation.noise()
            self.steps += 1

    def end(self):
        self.work_s = None
        for call, share in self.fed:
            call.prefill -= share
            if not share or not call.prefill:
                call.steps -= 1
            if call.steps == 0:
                self.calls.remove(call)
                self.simulation.after(CALL_S, call.done)
        self.begin()


@dataclass
class Traffic:
    """``acceptance(number)`` of each request, by its number; ``n_gram(number)`` likewise of look-ups, which propose
    ``n_gram_tokens`` with probability ``match``."""

    acceptance: Callable[[int], float]
    requests: int = 16
    max_tokens: int = 128
    prompt_tokens: int = 30
    n_gram: Callable[[int], float] = lambda number: 0.0
    match: float = 0.0


@dataclass
class Request:
    number: int
    policy: object
    random: random.Random
    made: int = 0
    cold: int = 0
    read: bool = False
    ngram_tokens: int = 0


@dataclass
class Run:
    """What came of a simulation."""

    seconds: float = 0.0
    tokens: int = 0
    drafted: int = 0
    draft_calls: int = 0
    lengths: list[tuple[float, int, int]] = field(default_factory=list)  # time, request, length of every round
    busy: tuple[int, float] = (0, 0.0)  # tokens and seconds until the last request began: all places were taken

    @property
    def tokens_per_s(self):
        tokens, seconds = self.busy
        return tokens / seconds


class Simulation:
    """Runs ``traffic`` with so many requests at a time; ``follow()`` gives the policy of each."""

    def __init__(self, machine, follow, traffic, concurrency, seed=0, jitter=0.0):
        self.traffic, self.follow = traffic, follow
        self.shared = machine.shared
        self.target = Engine(self, machine.target_step_s, machine.chunk_tokens)
        self.draft = Engine(self, machine.draft_step_s, machine.chunk_tokens)
        self.time, self.events, self.order = 0.0, [], count()
        self.random, self.jitter = random.Random(seed), jitter
        self.seed, self.started, self.running, self.result = seed, 0, 0, Run()
        self.concurrency = concurrency

    def noise(self):
        return self.random.uniform(1 - self.jitter, 1 + self.jitter) if self.jitter else 1.0

    def after(self, seconds, action):
        heapq.heappush(self.events, (self.time + seconds, next(self.order), action))

    def run(self):
        for _ in range(min(self.concurrency, self.traffic.requests)):
            self.start()
        engines = (self.target, self.draft)
        while True:
            busy = [engine for engine in engines if engine.work_s is not None]
            speed = 0.5 if self.shared and len(busy) == 2 else 1.0
            step_s = min((engine.work_s / speed for engine in busy), default=float("inf"))
            event_s = self.events[0][0] - self.time if self.events else float("inf")
            passed = min(step_s, event_s)
            if passed == float("inf"):
                break
            self.time += passed
            for engine in busy:
                engine.work_s -= passed * speed
            if event_s <= step_s:
                heapq.heappop(self.events)[2]()
            else:
                min(busy, key=lambda engine: engine.work_s).end()
        self.result.seconds = self.time
        return self.result

    def start(self):
        number, self.started = self.started, self.started + 1
        self.running += 1
        self.result.busy = self.result.tokens, self.time
        draws = random.Random(1000 * self.seed + number)
        request = Request(number, self.follow(), draws, cold=self.traffic.prompt_tokens)
        self.after(0.0, lambda: self.round(request))

    def round(self, request):
        room = self.traffic.max_tokens - request.made
        request.ngram_tokens = 8 if request.random.random() < self.traffic.match else 0
        plan = request.policy.plan(
            running=self.running, room_tokens=room, ngram_tokens=request.ngram_tokens, cold_tokens=request.cold
        )
        assert plan.length < room
        self.result.lengths.append((self.time, request.number, plan.length))
        began, running = self.time, self.running
        if plan.length and plan.source == "model":
            cold, request.cold = request.cold, 0
            call = Call(max(0, cold - 2), plan.length, 1, lambda: self.verify(request, plan, began, running, cold))
            self.after(CALL_S, lambda: self.draft.submit(call))
            self.result.draft_calls += 1
        else:
            self.verify(request, plan, began, running, 0)

    def verify(self, request, plan, began, running, cold):
        draft_s = self.time - began if plan.length and plan.source == "model" else 0.0
        drafted = min(plan.length, request.ngram_tokens) if plan.source == "ngram" else plan.length
        prefill = 0 if request.read else self.traffic.prompt_tokens
        request.read = True
        asked = self.time

        def finish():
            self.finish(request, plan, running, drafted, draft_s, self.time - asked, cold)

        # Only drafts change what a step yields: without any it is one token a step.
        steps, fed = (1, drafted + 1) if drafted else (max(1, plan.plain_tokens), 1)
        self.after(CALL_S, lambda: self.target.submit(Call(prefill, steps, fed, finish)))

    def finish(self, request, plan, running, drafted, draft_s, target_s, cold):
        chances = self.traffic.acceptance if plan.source == "model" else self.traffic.n_gram
        accepted = 0
        while accepted < drafted and request.random.random() < chances(request.number):
            accepted += 1
        new = accepted + 1 if drafted else max(1, plan.plain_tokens)
        request.made += new
        # The draft engine knows its own drafts, but the last, and what of them was kept.
        knows = min(accepted, drafted - 1) if plan.source == "model" and drafted else 0
        request.cold += new - knows
        self.result.tokens += new
        self.result.drafted += drafted
        request.policy.observe(RoundOutcome(plan, running, drafted, accepted, new, draft_s, target_s, cold))
        if request.made < self.traffic.max_tokens:
            self.round(request)
            return
        self.running -= 1
        if self.started < self.traffic.requests:
            self.start()
