"""The HTTPS face of admission: reads reviews within bounds, hands them to the rules, answers.

Whatever arrives, the caller gets an answer that says what was wrong: too large, too slow, not JSON, not
a review. An API server with failure policy Fail then shows that text to the user. Most rules are pure and take
well under a millisecond, so a request's time is spent waiting for its bytes; those that must wait for others
give their slot to somebody else meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from apportion.admission import metrics, review, reviewing
from apportion.admission.review import Answer, BadReview, Question
from apportion.apis.errors import InputError

log = logging.getLogger(__name__)

Rule = Callable[[Question], Answer | Awaitable[Answer]]
Check = Callable[[], bool | str]


@dataclass(frozen=True)
class Limits:
    """How much one process takes on."""

    body_bytes: int = 8 * 1024 * 1024
    """An update carries two objects, and an API server stores at most about 1.5 MiB each."""
    concurrent: int = 64
    waiting: int = 2000
    """Reviews in all, those that wait for a decision included; more are turned away at once."""
    seconds: float = 9.0
    """Below the 10 s after which the API server stops waiting, so that our reason is heard."""
    drain_seconds: float = 2.0
    """How long we go on answering after we stopped being ready; endpoints lag a little."""


class AdmissionServer:
    """Serves one rule per path."""

    def __init__(
        self,
        rules: Mapping[str, Rule],
        context: ssl.SSLContext,
        *,
        able: Check = lambda: True,
        limits: Limits | None = None,
    ) -> None:
        """`able` says whether the rules know enough to judge; until then callers are told to come back."""
        self._able = able
        self._limits = limits or Limits()
        self._slots = asyncio.Semaphore(self._limits.concurrent)
        self._present = 0
        self._rules = dict(rules)
        app = web.Application(client_max_size=self._limits.body_bytes)
        for path in self._rules:
            app.router.add_post(path, self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=self._limits.seconds)
        self._context = context
        self._site: web.TCPSite | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which matters where 0 was asked for."""
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, host, port, ssl_context=self._context)
        await self._site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Answer for a moment longer, then finish what is in flight and close."""
        await asyncio.sleep(self._limits.drain_seconds)
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        path = request.path
        began = time.perf_counter()
        with metrics.IN_FLIGHT.track_inprogress():
            response, outcome = await self._respond(request)
        metrics.SECONDS.labels(path).observe(time.perf_counter() - began)
        metrics.REVIEWS.labels(path, outcome).inc()
        return response

    async def _respond(self, request: web.Request) -> tuple[web.Response, str]:
        if request.content_type != "application/json":
            return _complaint(415, f"expected application/json, got {request.content_type}"), "malformed"
        if self._present >= self._limits.waiting:
            return _complaint(503, "too many reviews at once; try again", retry_after=1), "overloaded"
        self._present += 1
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._answer(request)
        except TimeoutError:
            message = f"busy or body too slow: no complete review within {self._limits.seconds:g} s; try again"
            return _complaint(503, message, retry_after=1), "overloaded"
        except web.HTTPRequestEntityTooLarge:
            return _complaint(413, f"a review may have {self._limits.body_bytes} bytes"), "malformed"
        finally:
            self._present -= 1

    async def _answer(self, request: web.Request) -> tuple[web.Response, str]:
        path = request.path
        try:
            async with self._slots:
                body = await request.read()
                able = self._able()
                if able is not True:
                    message = f"not ready to judge: {able or 'not yet'}; try again"
                    return _complaint(503, message, retry_after=1), "overloaded"
                question = review.parse(body)
                judged = self._judge(path, question)
            answer = judged if isinstance(judged, Answer) else await self._awaited(question, judged)
        except BadReview as error:
            return _complaint(400, str(error)), "malformed"
        except (TimeoutError, web.HTTPException):
            raise
        except Exception:
            log.exception("%s: a rule failed", path)
            return _complaint(500, "apportion: internal error, see the webhook's log"), "failed"
        return web.Response(body=answer.body, content_type="application/json"), answer.outcome

    def _judge(self, path: str, question: Question) -> Answer | Awaitable[Answer]:
        try:
            return self._rules[path](question)
        except InputError as error:
            return reviewing.refusal(question, error)

    async def _awaited(self, question: Question, judged: Awaitable[Answer]) -> Answer:
        try:
            return await judged
        except InputError as error:
            return reviewing.refusal(question, error)


def _complaint(status: int, text: str, *, retry_after: int | None = None) -> web.Response:
    headers = {"Retry-After": str(retry_after)} if retry_after else None
    return web.Response(status=status, text=f"{text}\n", headers=headers)
