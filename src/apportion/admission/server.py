"""The HTTPS server of admission: reads reviews within limits, calls the rules, answers.

Invalid requests get an answer with the reason: too large, too slow, not JSON, not a review. With failure policy
Fail, the API server shows this text to the user. A review takes its turn once its body is there; most rules are pure
and take well under a millisecond. Large reviews take turns.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import ssl
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from apportion.admission import admission_review, metrics
from apportion.admission.admission_review import BadReview, Question, ReviewAnswer
from apportion.admission.large_reviews import LARGE_BYTES, LargeReviews
from apportion.apis.errors import InputError
from apportion.cluster.serving.limits import ServerLimits
from apportion.cluster.serving.messages import BadRequestError, Head, Response, text
from apportion.cluster.serving.server import HttpServer

log = logging.getLogger(__name__)

Rule = Callable[[Question], ReviewAnswer | Awaitable[ReviewAnswer]]
Check = Callable[[], bool | str]

_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True)
class Limits:
    """Limits of one process."""

    server: ServerLimits = field(default_factory=ServerLimits)
    waiting: int = 480
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
        tls: Callable[[], ssl.SSLContext],
        *,
        able: Check = lambda: True,
        large: LargeReviews | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`able` says whether the caches of the rules are synced; until then callers are asked to retry."""
        self._able = able
        self._limits = limits or Limits()
        self._large = large or LargeReviews()
        self._present = 0
        self._rules = dict(rules)
        self._http = HttpServer(self._handle, check=self._check, limits=self._limits.server, tls=tls)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which is selected by the system if 0 was given."""
        return await self._http.start(host, port)

    async def stop(self) -> None:
        """Continue to answer for a moment, then complete requests in progress and close."""
        await asyncio.sleep(self._limits.drain_seconds)
        await self._http.stop(self._limits.seconds)

    def _check(self, head: Head) -> None:
        if head.path not in self._rules:
            raise BadRequestError(404, "there is no such path")
        if head.method != "POST":
            raise BadRequestError(405, "reviews are sent with POST")
        if head.content_type != "application/json":
            self._count(head.path, "malformed")
            raise BadRequestError(415, f"expected application/json, got {head.content_type!r}")
        if self._present >= self._limits.waiting and not self._http.connections.give_up_largest(LARGE_BYTES):
            self._count(head.path, "overloaded")
            raise BadRequestError(503, "too many concurrent reviews; try again")

    async def _handle(self, head: Head, body: bytearray) -> Response:
        began = time.perf_counter()
        self._present += 1
        try:
            with metrics.IN_FLIGHT.track_inprogress():
                response, outcome = await self._respond(head, body)
        finally:
            self._present -= 1
        took = time.perf_counter() - began
        log.debug("review on %s: %s, %.1f ms", head.path, outcome, 1000 * took)
        metrics.SECONDS.labels(head.path).observe(took)
        self._count(head.path, outcome)
        return response

    async def _respond(self, head: Head, body: bytearray) -> tuple[Response, str]:
        able = self._able()
        if able is not True:
            return text(503, f"not ready: {able or 'starting'}; try again"), "overloaded"
        try:
            async with asyncio.timeout(self._limits.seconds):
                answer = await self._answer(head, body)
        except TimeoutError:
            message = f"timeout: the review was not completed within {self._limits.seconds:g} s; try again"
            return text(503, message), "overloaded"
        except BadReview as error:
            return text(400, str(error)), "malformed"
        except Exception:
            log.exception("%s: internal error", head.path)
            return text(500, "apportion: internal error, see the log of the webhook"), "failed"
        return Response(body=answer.body, content_type="application/json"), answer.outcome

    async def _answer(self, head: Head, body: bytearray) -> ReviewAnswer:
        encoding = head.headers.get("content-encoding", "identity").lower()
        if encoding == "identity" and len(body) <= LARGE_BYTES:
            question = admission_review.parse(body)
            judged = self._judge(head.path, question)
        else:
            question, judged = await self._in_turn(head.path, body, encoding)
        return judged if isinstance(judged, ReviewAnswer) else await self._awaited(question, judged)

    async def _in_turn(
        self, path: str, body: bytearray, encoding: str
    ) -> tuple[Question, ReviewAnswer | Awaitable[ReviewAnswer]]:
        most = self._limits.server.body_bytes
        judged: ReviewAnswer | Awaitable[ReviewAnswer] | None = None
        try:
            async with self._large.turn(most):
                question = admission_review.parse(_plain(body, encoding, most))
                await asyncio.sleep(0)
                judged = self._judge(path, question)
        except asyncio.CancelledError:
            if inspect.iscoroutine(judged):  # given up before anybody waited for it
                judged.close()
            raise
        return question, judged

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

    def _count(self, path: str, outcome: str) -> None:
        metrics.REVIEWS.labels(path, outcome).inc()


def _plain(body: bytearray, encoding: str, most: int) -> bytes | bytearray:
    """The body without its content encoding; never more than `most` bytes of it are made."""
    if encoding == "identity":
        return body
    if encoding != "gzip":
        raise BadReview(f"the content encoding {encoding[:20]!r} is not supported; send the review as it is")
    try:
        unpacking = zlib.decompressobj(_GZIP)
        plain = unpacking.decompress(body, most)
    except zlib.error as error:
        raise BadReview(f"the body is not gzip: {error}") from None
    if not unpacking.eof:
        raise BadReview(f"the body is not complete gzip, or has more than {most} bytes")
    return plain


def _rejection(question: Question, error: InputError) -> ReviewAnswer:
    log.info("%s rejected: %s", question.label, error)
    return admission_review.rejected(question.uid, error)
