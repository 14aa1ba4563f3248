"""The API server: one function from a request to a response.

    identify the caller -> what is asked -> is it allowed -> do it -> answer, always with a Status on failure

Nothing here knows about sockets; `http` and `in_process_transport` carry requests in. The parts that decide what
objects may hold (models, defaults, validation, tables, admission) are called through `storage`, `content` and `verbs`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from apportion.cluster.transport import HttpRequest, Response
from pocketkube.api import limits, media_types, non_resource_paths, rendering, routing, status
from pocketkube.api.access import impersonation
from pocketkube.api.access.rbac import Rbac
from pocketkube.api.access.reviews import PLURALS as REVIEWS
from pocketkube.api.access.reviews import Reviews
from pocketkube.api.access.tokens import Tokens
from pocketkube.api.admission.chain import AdmissionChain
from pocketkube.api.content.conversion import Versions
from pocketkube.api.content.object_content import Content
from pocketkube.api.custom_kinds.definitions import Definitions
from pocketkube.api.patches.dispatch import Patcher
from pocketkube.api.registry import Registry
from pocketkube.api.rendering import Renderer
from pocketkube.api.request_attributes import ANONYMOUS, RequestInfo, User
from pocketkube.api.routing import Route
from pocketkube.api.storage import metadata, selectors
from pocketkube.api.storage.deletion import Deleter
from pocketkube.api.storage.store import Bucket, Store
from pocketkube.api.storage.strategies import Strategies
from pocketkube.api.storage.watching import Watches
from pocketkube.api.storage.writer import Options, Target, Writer
from pocketkube.api.subresources.dispatch import Subresources
from pocketkube.api.subresources.eviction import Evictions
from pocketkube.api.turns import Turns
from pocketkube.api.verbs import Verbs, read_object

log = logging.getLogger(__name__)

SERVICE_ACCOUNTS = "system:serviceaccount:"
LOGGED = 500  # characters of a message


class ApiServer:
    """A Kubernetes API in memory."""

    def __init__(
        self,
        *,
        clock: metadata.Clock = metadata.utc_now,
        registry: Registry | None = None,
        store: Store | None = None,
        with_controllers: bool = False,
    ) -> None:
        """`with_controllers`: new nodes and volumes are held back by what only controllers take away again."""
        self.clock = clock
        self.registry = registry or Registry.builtin()
        self.store = store or Store(fields_of=self._fields_of)
        self.versions = Versions()
        self.turns = Turns()
        self.definitions = Definitions(self.store, self.registry, self.versions, clock)
        self.tokens = Tokens(self.store, clock=clock)
        self.authorizer = Rbac(self.store)
        self.reviews = Reviews(self.authorizer, self.tokens)
        self.admission = admission = AdmissionChain(
            self.store, self.registry, self.authorizer, with_controllers=with_controllers
        )
        self.content = Content(self.registry)
        self.watches = Watches(self.store)
        self.writer = Writer(
            self.store,
            self.versions,
            self.content,
            Strategies(self._service_addresses, self.definitions.accept),
            admission,
            clock,
            self.turns,
        )
        self.deleter = Deleter(self.store, self.versions, admission, clock)
        self.definitions.use(self.writer, self.deleter)
        patcher = Patcher(self.writer, clock, self.turns)
        self.subresources = Subresources(
            self.store,
            self.versions,
            self.registry,
            self.writer,
            patcher,
            Evictions(self.store, self.registry, self.writer, self.deleter, clock),
            clock,
            self.turns,
        )
        self.subresources.token_source = self._issue_token
        self.verbs = Verbs(
            self.store,
            Renderer(self.versions),
            self.writer,
            self.deleter,
            patcher,
            self.watches,
            self.versions,
            self.turns,
        )
        self.plain = non_resource_paths.Paths(self.registry)

    async def handle(self, request: HttpRequest, user: User | None = None) -> Response:
        """Answer a request; a caller that is already identified is given as `user`."""
        try:
            return await self._answer(request, user)
        except status.ApiStatus as problem:
            if problem.code == HTTPStatus.FORBIDDEN:
                self._log_refusal(request, user, problem)
            return Response(problem.code, {"content-type": media_types.JSON, **problem.headers}, problem.encode())
        except RecursionError:
            nested = status.bad_request("the object is nested too deeply")
            return Response(nested.code, {"content-type": media_types.JSON}, nested.encode())
        except Exception as problem:
            log.exception("request failed: %r %r", request.method, request.path)
            unexpected = status.internal(f"{type(problem).__name__}: {problem}")
            return Response(unexpected.code, {"content-type": media_types.JSON}, unexpected.encode())

    def _log_refusal(self, request: HttpRequest, user: User | None, problem: status.ApiStatus) -> None:
        """Programs that lack a right often hide it: one line tells which one."""
        with suppress(status.ApiStatus):
            asking = user or self._identify(request)
            if asking.name.startswith(SERVICE_ACCOUNTS):
                log.info("refused %s: %s %r: %r", asking.name, request.method, request.path, str(problem)[:LOGGED])

    async def close(self) -> None:
        """End all watches and background work."""
        self.watches.close()
        await self.definitions.close()
        await self.admission.close()
        self.turns.close()

    async def _answer(self, request: HttpRequest, user: User | None) -> Response:
        if len(request.body or b"") > limits.MAX_BODY:
            raise status.too_large(limits.MAX_BODY)
        user = impersonation.identity(user or self._identify(request), request.headers, self.authorizer)
        query: dict[str, str] = {}
        for name, value in request.query:
            query.setdefault(name, value)
        route = routing.resolve(self.registry, request.method, request.path, query)
        if route is None:
            info = RequestInfo(request.method.lower(), request.path)
            self._authorize(user, info)
            return self.plain.answer(request)
        self._authorize(user, routing.for_authorization(route.info, query))
        if not _serves(route):
            raise _not_served(route)
        if self.subresources.handles(route):
            return await self.subresources.answer(route, request, query, user)
        if route.resource.plural in REVIEWS and not route.resource.custom:
            return await self._review(route, request, user)
        return await self.verbs.answer(route, request, query, user)

    async def _review(self, route: Route, request: HttpRequest, user: User) -> Response:
        accept = media_types.accept(request.headers.get("accept", ""))
        body, size = await read_object(self.turns, request), len(request.body or b"")
        asked = await self.turns.run(size, self.content.decode, route.resource, body, Options(user=user))
        return rendering.answer(self.reviews.answer(route.resource, asked, user, route.namespace), accept, code=201)

    async def _issue_token(self, target: Target, body: dict[str, Any]) -> dict[str, Any]:
        return await self.tokens.request(self.registry, target.namespace, target.name, body)

    def _identify(self, request: HttpRequest) -> User:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        user = self.tokens.authenticate(token.strip())
        if user is None:
            raise status.unauthorized()
        return user

    def _authorize(self, user: User, info: RequestInfo) -> None:
        if not self.authorizer.allows(user, info):
            raise _forbidden(self.registry, user, info)

    def _fields_of(self, bucket: Bucket, obj: dict[str, Any]) -> dict[str, str]:
        fields = selectors.fields_of(bucket, obj)
        for path in self.definitions.selectable(bucket):
            fields[path] = selectors.text_at(obj, path)
        return fields

    def _service_addresses(self) -> Iterable[str]:
        for service in self.store.items(Bucket("", "services")):
            yield service.fields.get("spec.clusterIP", "")


def _serves(route: Route) -> bool:
    if route.subresource:
        return bool(route.name)
    on_object = route.verb in ("get", "update", "patch", "delete")
    return route.verb in route.resource.verbs and (route.verb == "watch" or on_object is bool(route.name))


def _not_served(route: Route) -> status.ApiStatus:
    if route.verb == "watch" and "list" in route.resource.verbs:
        what = f'watch is not supported on resources of kind "{route.resource.plural}"'
        return status.ApiStatus(405, "MethodNotAllowed", what, {"kind": route.resource.plural})
    return status.method_not_allowed()


def _forbidden(registry: Registry, user: User, info: RequestInfo) -> status.ApiStatus:
    who = f'User "{user.name}" cannot {info.verb}'
    if not info.is_resource:
        return status.ApiStatus(403, "Forbidden", f'forbidden: {who} path "{info.path}"', {})
    resource = registry.find(info.group, info.version, info.plural)
    assert resource is not None
    plural = f"{info.plural}/{info.subresource}" if info.subresource else info.plural
    scope = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    why = f'{who} resource "{plural}" in API group "{info.group}" {scope}'
    return status.forbidden(resource, info.name, why)
