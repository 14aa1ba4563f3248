"""The HTTPS server of admission: reads reviews within limits, calls the rules, answers.

Invalid requests get an answer with the reason: too large, too slow, not JSON, not a review. With failure policy
Fail, the API server shows this text to the user. Most rules are pure and take well under a millisecond, so most of
the time is spent waiting for the body; rules that wait for something release their slot in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from apportion.admission import admission_review, metrics
from apportion.admission.admission_review import BadReview, Question, ReviewAnswer
from apportion.apis.errors import InputError

log = logging.getLogger(__name__)

Rule = Callable[[Question], ReviewAnswer | Awaitable[ReviewAnswer]]
Check = Callable[[], bool | str]


@dataclass(frozen=True)
class Limits:
    """Limits of one process."""

    body_bytes: int = 8 * 1024 * 1024
    """An update carries two objects, and an API server stores at most about 1.5 MiB each."""
    concurrent: int = 64
    waiting: int = 2000
    """Reviews in total, including those that wait for a decision; more are rejected immediately."""
    seconds: float = 9.0
    """Below the timeout of 10 s of the API server, so that it receives our reason."""
    drain_seconds: float = 2.0
    """How long the server continues to answer after it reports not ready; endpoints are updated with a delay."""


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
        """`able` says whether the caches of the rules are synced; until then callers are asked to retry."""
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
        """Listen; returns the port, which is selected by the system if 0 was given."""
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, host, port, ssl_context=self._context)
        await self._site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Continue to answer for a moment, then complete requests in progress and close."""
        await asyncio.sleep(self._limits.drain_seconds)
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        path = request.path
        began = time.perf_counter()
        with metrics.IN_FLIGHT.track_inprogress():
            response, outcome = await self._respond(request)
        took = time.perf_counter() - began
        log.debug("review on %s: %s, %.1f ms", path, outcome, 1000 * took)
        metrics.SECONDS.labels(path).observe(took)
        metrics.REVIEWS.labels(path, outcome).inc()
        return response

    async def _respond(self, request: web.Request) -> tuple[web.Response, str]:
        if request.content_type != "application/json":
            return _complaint(415, f"expected application/json, got {request.content_type}"), "malformed"
        if self._present >= self._limits.waiting:
            return _complaint(503, "too many concurrent reviews; try again", retry_after=1), "overloaded"
        self._present += 1
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._answer(request)
        except TimeoutError:
            message = f"timeout: the review was not completed within {self._limits.seconds:g} s; try again"
            return _complaint(503, message, retry_after=1), "overloaded"
        except web.HTTPRequestEntityTooLarge:
            return _complaint(413, f"the review is larger than {self._limits.body_bytes} bytes"), "malformed"
        finally:
            self._present -= 1

    async def _answer(self, request: web.Request) -> tuple[web.Response, str]:
        path = request.path
        try:
            async with self._slots:
                body = await request.read()
                able = self._able()
                if able is not True:
                    message = f"not ready: {able or 'starting'}; try again"
                    return _complaint(503, message, retry_after=1), "overloaded"
                question = admission_review.parse(body)
                judged = self._judge(path, question)
            answer = judged if isinstance(judged, ReviewAnswer) else await self._awaited(question, judged)
        except BadReview as error:
            return _complaint(400, str(error)), "malformed"
        except (TimeoutError, web.HTTPException):
            raise
        except Exception:
            log.exception("%s: internal error", path)
            return _complaint(500, "apportion: internal error, see the log of the webhook"), "failed"
        return web.Response(body=answer.body, content_type="application/json"), answer.outcome

    def _judge(self, path: str, question: Question) -> ReviewAnswer | Awaitable[ReviewAnswer]:
        try:
            return self._rules[path](question)
        except InputError as error:
            return _rejection(question, error)

    async def _awaited(self, question: Question, judged: Awaitable[ReviewAnswer]) -> ReviewAnswer:
        try:
            return await judged
        except InputError as error:
            return _rejection(question, error)


def _rejection(question: Question, error: InputError) -> ReviewAnswer:
    log.info("%s rejected: %s", question.label, error)
    return admission_review.rejected(question.uid, error)


def _complaint(status: int, text: str, *, retry_after: int | None = None) -> web.Response:
    headers = {"Retry-After": str(retry_after)} if retry_after else None
    return web.Response(status=status, text=f"{text}\n", headers=headers)
