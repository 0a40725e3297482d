"""Asks a service for each row, and puts the answer into it: `lookup`.

What it decides: which questions a letter has, which of them are asked, when, and what follows from an error.

Promises:

- Questions that are equal are asked once. They wait for no one but the rate: `concurrency` calls are under way at a time.
- The rows go on in their order, when all answers are there. So nothing overtakes a row, and the answers belong to the letter's transaction.
- An answer that the letter has got stays known until the letter is complete, however often it runs again. Each record has it for itself:
  what its code changes in it is seen nowhere else.
- An error that says that the service is away is no record's fault, unless the service has answered others since. When so many calls in a
  row have failed with one, the circuit opens: the letter is dropped, and waits for a probe to be answered (see `learning`).
- Any other error is the record's own, when it has been asked again `retry` times: its policy decides. All records of a letter that fail
  are known after one pass.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Hashable, Sequence
from typing import Any

from ....core.errors import DataError
from ...cancellation import Unasked, passes, said
from ...job.steps.rows import LookupStep
from ...job.types.arguments import shown
from ...learning import LateTopics, MustLearn, NotYet
from ...patience import DrainTimeout
from ...records.columns.records import Records
from ...records.columns.selecting import column_of, lacking
from ..base.stateless import Env, Operator, blaming, failing
from ..base.together import together
from .answers import MISSING, Answers
from .breaker import Breaker
from .own_answers import own
from .rate import Rate

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
"""Between two tries of a call."""
ROUNDS_WANTED, MOST_ROUNDS = 4, 10
"""How many rounds of calls a letter shall have: at the end of each letter, the slowest call keeps the others from going on. And how many it
may have, so that it does not take long."""


class WrongAnswer(DataError):
    """The function of a lookup has returned what cannot be answers."""


class ServiceAway(NotYet):
    """A service does not answer: its circuit is open."""


class LookupOp(Operator):
    """Asks a service, and joins its answers."""

    awaits = True

    def __init__(self, step: LookupStep, env: Env) -> None:
        super().__init__(step, env)
        self.lookup = step
        self.name = shown(step.fn)
        self.on = None if step.on is None else column_of(step.on)
        self.named = step.on is not None or step.cache_ms > 0
        """Whether questions must be hashable."""
        self.cache = Answers(step.max_cached, step.cache_ms)
        self.rate = Rate(step.per_s) if step.per_s else None
        self.breaker = Breaker(step.breaker)
        round_ = step.concurrency * step.batch
        self.rows_at_once, self.rows_at_most = round_ * ROUNDS_WANTED, round_ * MOST_ROUNDS
        if step.per_s:
            self.rows_at_most = min(self.rows_at_most, max(1, int(step.per_s)) * step.batch)
            self.rows_at_once = min(self.rows_at_once, self.rows_at_most)
        self.kept: dict[Hashable, Any] = {}
        """The answers that the running letter has got, in all its tries."""
        self.waiting: list[_Group] = []
        """What waits for the circuit to close."""
        self.counted_openings = 0
        self.last: BaseException | None = None
        """The last error that said that the service is away."""
        self.token = object()
        """Tells the circuit from that of a task's earlier life."""

    def push(self, rows: Records) -> None:
        self.env.defer(lambda: self._run(self.user_rows(rows)))

    def complete(self) -> None:
        self.kept.clear()
        self.waiting.clear()
        self.counted_openings = self.breaker.openings

    async def _run(self, rows: Records) -> None:
        questions = rows.values if self.on is None else self.select(self.on, rows.values, self.lookup.on)
        keys = self._keys(questions, rows)
        asking = _Asking(dict(zip(keys, questions, strict=True)))
        self._look_up(asking)
        await self._ask_all(asking)
        if asking.failed:
            bad = [(at, asking.failed[key]) for at, key in enumerate(keys) if key in asking.failed]
            raise failing(self.step, bad, rows)
        self.env.count("lookup_circuits_opened", self.breaker.openings - self.counted_openings)
        answers = [own(asking.answers[key]) for key in keys]
        if (into := self.lookup.into) is not None:
            with blaming(self.step, lacking((), rows.values)):
                answers = [into(value, answer) for value, answer in zip(rows.values, answers, strict=True)]
        self.forward(rows.with_values(answers))

    def _keys(self, questions: Sequence[Any], rows: Records) -> list[Hashable]:
        """By what each question is known. One that cannot be hashed is known by its place, and asked for each row."""
        keys: list[Hashable] = []
        bad: list[tuple[int, BaseException]] = []
        for at, question in enumerate(questions):
            key = question if type(question) is str else (type(question), question)
            try:
                hash(key)
            except TypeError:
                key = (_Place, at)
                if self.named:
                    what = f"a {type(question).__name__} cannot be looked up in a cache"
                    bad.append(
                        (
                            at,
                            WrongAnswer(
                                what, remedy="on= a field, or a function that returns a text, a number or a tuple"
                            ),
                        )
                    )
            keys.append(key)
        if bad:
            raise failing(self.step, bad, rows)
        return keys

    def _look_up(self, asking: _Asking) -> None:
        """Take the answers that are known."""
        now_ms, cached = self.env.now_ms(), 0
        for key in asking.questions:
            answer = self.kept.get(key, MISSING)
            if answer is MISSING and self.lookup.cache_ms:
                answer = self.cache.find(key, now_ms)
                cached += answer is not MISSING
            if answer is not MISSING:
                asking.answers[key] = answer
        self.env.count("lookups_cached", cached)
        self.env.count("lookups_asked", len(asking.questions) - len(asking.answers))

    async def _ask_all(self, asking: _Asking) -> None:
        """Ask what is not known. Raises `MustLearn` if the circuit is open, and something is still to be asked."""

        async def work(group: _Group) -> bool:
            asking.running.append(group)
            await self._ask(group, asking, self.lookup.retry)
            asking.running.remove(group)
            return True

        while left := asking.left():
            size = self.lookup.batch
            groups = [_Group([key], asking.questions) for key in asking.alone]
            some = [key for key in left if key not in asking.alone]
            groups += [_Group(some[at : at + size], asking.questions) for at in range(0, len(some), size)]
            if self.breaker.open:
                self.waiting = groups
                raise self._must_learn()
            await together(groups, self.lookup.concurrency, work, self.env.meter)
            for group in asking.running:  # the function has cancelled its own task, which a TaskGroup does not report
                if len(group.keys) == 1:
                    asking.fail(group, Unasked(self.name))
                asking.alone.update(dict.fromkeys(group.keys))
            asking.running.clear()
            asking.alone = {key: None for key in asking.alone if key not in asking.answers and key not in asking.failed}

    async def _ask(self, group: _Group, asking: _Asking, retry: int) -> None:
        """Ask until there is an answer, or an error to judge. Returns early when the circuit opens."""
        tries, before = 0, self.breaker.answers
        while not self.breaker.open:
            tries += 1
            try:
                await self._may_go()
                if self.breaker.open:
                    return None
                self._take(group, await self._call(group), asking)
            except BaseException as cause:
                if passes(cause):
                    raise
                away = self._heard(cause)
                alone = away and self.breaker.after > 0 and self.breaker.answers == before
                if isinstance(cause, WrongAnswer | DrainTimeout):
                    return asking.fail(group, cause)
                if not isinstance(cause, Exception) or (tries > retry and not alone):
                    return await self._divide(group, asking, cause)
            else:
                return None
            if not self.breaker.open:
                await asyncio.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(tries - 1, 10)))

    async def _divide(self, group: _Group, asking: _Asking, cause: BaseException) -> None:
        """One of several questions may have made all of them fail."""
        if len(group.keys) == 1:
            return asking.fail(group, cause)
        middle = len(group.keys) // 2
        for part in (group.keys[:middle], group.keys[middle:]):
            await self._ask(_Group(part, asking.questions), asking, 0)
        return None

    async def _may_go(self) -> None:
        if self.rate is not None and (wait_s := self.rate.wait_s(asyncio.get_running_loop().time())) > 0:
            await asyncio.sleep(wait_s)

    async def _call(self, group: _Group) -> Sequence[Any]:
        """Call the function once, and check what it returns."""
        many = self.lookup.batch > 1
        answer = self.lookup.fn(list(group.questions) if many else group.questions[0])
        if not inspect.isawaitable(answer):
            raise WrongAnswer(
                f"{self.name} gave {type(answer).__name__}, which cannot be awaited",
                remedy="lookup() needs an async function; map() takes a plain one",
            )
        limit = asyncio.timeout(self.lookup.timeout_s)

        async def in_time() -> Any:
            async with limit:
                return await answer

        try:
            found = await self.env.patience.within(self.name, in_time(), self.step.place)
        except TimeoutError as error:
            if isinstance(error, DrainTimeout) or not limit.expired():
                raise
            raise TimeoutError(
                f"{self.name} gave no answer within {self.lookup.timeout_s:g} s; see timeout= of this lookup"
            ) from error
        if not many:
            return [found]
        if not isinstance(found, list | tuple) or len(found) != len(group.questions):
            gave = f"{len(found)} answers" if isinstance(found, list | tuple) else type(found).__name__
            raise WrongAnswer(
                f"{self.name} gave {gave} for {len(group.questions)} questions",
                remedy="return a list with one answer for each question, in their order, or batch=1",
            )
        return found

    def _take(self, group: _Group, found: Sequence[Any], asking: _Asking | None) -> None:
        """Answers have come. An exception among several is the error of its record."""
        self.breaker.answered()
        now_ms = self.env.now_ms()
        for key, answer in zip(group.keys, found, strict=True):
            if isinstance(answer, BaseException) and self.lookup.batch > 1:
                if asking is not None:
                    asking.failed[key] = answer
                continue
            if asking is not None:
                asking.answers[key] = answer
            if type(key) is tuple and key[0] is _Place:
                continue
            self.kept[key] = answer
            if self.lookup.cache_ms:
                self.cache.keep(key, answer, now_ms)

    def _heard(self, cause: BaseException) -> bool:
        """Tell the circuit of an error. Returns whether it says that the service is away."""
        away = isinstance(cause, self.lookup.away) and not isinstance(cause, DrainTimeout)
        if away:
            self.breaker.failed()
            self.last = cause
        else:
            self.breaker.answered()
        return away

    def _must_learn(self) -> MustLearn:
        away = self._away()
        return MustLearn(
            away.what,
            question=(self.token, self.breaker.openings),
            lacks=f"the service of {self.step.place} cannot be asked",
            learn=self._probe,
            remedy=away.remedy,
        )

    def _away(self) -> ServiceAway:
        return ServiceAway(
            f"the circuit of {self.name} is open, {self.breaker.in_a_row} calls in a row have failed, the last one with "
            f"{'nothing' if self.last is None else said(self.last)} ({self.step.place})",
            remedy="bring the service back, a call in a while probes it; if such errors are those of records, leave them out of away=",
        )

    async def _probe(self, _: LateTopics) -> None:
        """Ask once. The next probe asks for something else, since one question may be what fails."""
        group = self.waiting.pop(0)
        self.waiting.append(group)
        try:
            await self._may_go()
            self._take(group, await self._call(group), None)
        except BaseException as cause:
            if passes(cause):
                raise
            if self._heard(cause):
                raise self._away() from cause  # any other error is an answer: the letter will judge it


class _Place:
    """Of a question that is known by its place alone."""


class _Group:
    """Questions that are asked in one call."""

    def __init__(self, keys: Sequence[Hashable], questions: dict[Hashable, Any]) -> None:
        self.keys = keys
        self.questions = [questions[key] for key in keys]


class _Asking:
    """The questions of some rows of a letter, and what is known of them."""

    def __init__(self, questions: dict[Hashable, Any]) -> None:
        self.questions = questions
        self.answers: dict[Hashable, Any] = {}
        self.failed: dict[Hashable, BaseException] = {}
        self.running: list[_Group] = []
        self.alone: dict[Hashable, None] = {}
        """Those of a call that was given up: each is asked for itself, to find the one whose fault it was."""

    def left(self) -> list[Hashable]:
        """What is still to be asked."""
        return [key for key in self.questions if key not in self.answers and key not in self.failed]

    def fail(self, group: _Group, cause: BaseException) -> None:
        """The records of these questions fail."""
        self.failed.update(dict.fromkeys(group.keys, cause))
