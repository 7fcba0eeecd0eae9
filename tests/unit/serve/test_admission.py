"""Who may begin, and in which order."""

import asyncio
import time

import pytest

from trt_spec.serve.admission import Admission, CacheTokens, ServerBusy


class Gone(Exception):
    pass


def stay():
    """A client that waits."""


class Crowd:
    """Requests by name, that enter an admission and stay until they are told to go."""

    def __init__(self, **given):
        self.loads = []
        given = {"places": 8, "queue_places": 8, "room": None, **given}
        self.admission = Admission(**given, on_change=lambda *load: self.loads.append(load))
        self.inside, self._leave = [], {}

    async def come(self, name, target=1, draft=0, check=stay):
        self._leave[name] = asyncio.Event()
        self._leave[name].task = asyncio.create_task(self._visit(name, CacheTokens(target, draft), check))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _visit(self, name, need, check):
        with self.admission.arrival():
            async with self.admission.place(need, check):
                self.inside.append(name)
                await self._leave[name].wait()
                self.inside.remove(name)

    async def go(self, *names):
        for name in names:
            self._leave[name].set()
            await self._leave[name].task
        for _ in range(5):
            await asyncio.sleep(0)

    def task(self, name):
        return self._leave[name].task


def test_requests_enter_while_both_caches_hold_them():
    async def scene():
        crowd = Crowd(room=CacheTokens(100, 50))
        await crowd.come("a", 60, 10)
        await crowd.come("b", 40, 40)
        await crowd.come("c", 1, 0)  # no room in the target's cache
        assert crowd.inside == ["a", "b"]
        await crowd.go("a")
        assert crowd.inside == ["b", "c"]
        await crowd.come("d", 1, 11)  # nor in the draft's
        assert crowd.inside == ["b", "c"]
        await crowd.go("b", "c", "d")

    asyncio.run(scene())


def test_nobody_overtakes_a_large_request():
    async def scene():
        crowd = Crowd(room=CacheTokens(100, 100))
        await crowd.come("a", 50)
        await crowd.come("large", 80)
        await crowd.come("small", 10)
        assert crowd.inside == ["a"]
        await crowd.go("a")
        assert crowd.inside == ["large", "small"]
        await crowd.go("large", "small")

    asyncio.run(scene())


def test_one_that_finds_nobody_gets_in_and_waits_for_nothing():
    async def scene():
        crowd = Crowd(room=CacheTokens(100, 100))
        await crowd.come("a", 50)
        await crowd.come("huge", 1000)
        await crowd.come("b", 50)
        assert crowd.inside == ["a"]
        await crowd.go("a")
        assert crowd.inside == ["huge"]
        await crowd.go("huge")
        assert crowd.inside == ["b"]
        await crowd.go("b")

    asyncio.run(scene())


def test_who_leaves_the_queue_makes_way_for_those_behind():
    async def scene():
        gone = False

        def check():
            if gone:
                raise Gone

        crowd = Crowd(room=CacheTokens(100, 100))
        await crowd.come("a", 50)
        await crowd.come("large", 80, check=check)
        await crowd.come("small", 10)
        started, gone = time.monotonic(), True
        with pytest.raises(Gone):
            await crowd.task("large")
        await asyncio.sleep(0)
        assert crowd.inside == ["a", "small"]
        assert time.monotonic() - started < 5
        await crowd.go("a", "small")
        assert crowd.loads[-1] == (0, 0)

    asyncio.run(scene())


def test_a_cancelled_wait_or_visit_leaves_nothing_behind():
    async def scene():
        crowd = Crowd(places=1)
        await crowd.come("a")
        await crowd.come("b")
        await crowd.come("c")
        crowd.task("b").cancel()
        crowd.task("a").cancel()
        await asyncio.gather(crowd.task("a"), crowd.task("b"), return_exceptions=True)
        await asyncio.sleep(0)
        assert crowd.admission.running == 1
        await crowd.go("c")
        assert crowd.admission.running == 0
        assert crowd.loads[-1] == (0, 0)

    asyncio.run(scene())


def test_more_than_places_and_queue_are_turned_away():
    async def scene():
        crowd = Crowd(places=1, queue_places=1)
        await crowd.come("a")
        await crowd.come("b")
        await crowd.come("c")
        with pytest.raises(ServerBusy, match="try again later"):
            await crowd.task("c")
        assert crowd.loads[-1] == (1, 1)
        await crowd.go("a", "b")

    asyncio.run(scene())
