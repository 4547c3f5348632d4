"""Many small questions, one request: callers ask one by one, the answers are fetched together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Batcher(Generic[K, V]):
    """Collects keys that are asked for within a moment and answers them with one call.

    Args:
        answer: Gets up to ``most`` distinct keys and returns a value for each. An error of its goes to all askers.
        moment: Seconds to wait for more keys after the first.
    """

    def __init__(
        self, answer: Callable[[list[K]], Awaitable[Mapping[K, V]]], *, moment: float = 0.005, most: int = 500
    ) -> None:
        self._answer = answer
        self._moment = moment
        self._most = most
        self._asked: dict[K, asyncio.Future[V]] = {}
        self._task: asyncio.Task[None] | None = None

    async def ask(self, key: K) -> V:
        """The value for one key. Keys under way are not asked for twice while they wait for their turn."""
        future = self._asked.get(key)
        if future is None:
            future = self._asked[key] = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await asyncio.shield(future)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        turn: dict[K, asyncio.Future[V]] = {}
        try:
            await asyncio.sleep(self._moment)
            while self._asked:
                turn = {key: self._asked.pop(key) for key in list(self._asked)[: self._most]}
                try:
                    values = await self._answer(list(turn))
                    for key, future in turn.items():
                        _settle(future, value=values[key])
                except Exception as error:
                    for future in turn.values():
                        _settle(future, error=error)
        finally:
            self._task = None
            for future in (*turn.values(), *self._asked.values()):
                future.cancel()
            self._asked.clear()


def _settle(future: asyncio.Future[V], *, value: V | None = None, error: Exception | None = None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
        future.exception()  # whoever asked sees it; nobody need have waited
    else:
        future.set_result(value)  # type: ignore[arg-type]  # None only where V allows it
