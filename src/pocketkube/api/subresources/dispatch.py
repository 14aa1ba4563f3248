"""Which subresource answers a request, and with what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from apportion.cluster.transport import HttpRequest, Response
from pocketkube.api import media_types, rendering, status
from pocketkube.api.content import decoding
from pocketkube.api.content.conversion import Versions, bucket_of
from pocketkube.api.media_types import Accept
from pocketkube.api.patches.dispatch import Patcher
from pocketkube.api.registry import Registry, Resource
from pocketkube.api.request_attributes import User
from pocketkube.api.routing import Route, is_true
from pocketkube.api.storage import metadata
from pocketkube.api.storage.store import Store
from pocketkube.api.storage.writer import Options, Target, Update, Writer
from pocketkube.api.subresources import binding, logs, scale
from pocketkube.api.subresources.eviction import Evictions
from pocketkube.api.turns import Turns
from pocketkube.api.verbs import read_object, target, with_warnings, write_options

Obj = dict[str, Any]
TokenSource = Callable[[Target, Obj], Awaitable[Obj]]
_REFUSED = ("attach", "exec", "portforward", "proxy")


class Subresources:
    """Everything but the parts that are ordinary fields of their object."""

    def __init__(
        self,
        store: Store,
        versions: Versions,
        registry: Registry,
        writer: Writer,
        patcher: Patcher,
        evictions: Evictions,
        clock: metadata.Clock,
        turns: Turns,
    ) -> None:
        self.log_source: logs.LogSource | None = None
        self.token_source: TokenSource | None = None
        self._store = store
        self._versions = versions
        self._registry = registry
        self._writer = writer
        self._patcher = patcher
        self._evictions = evictions
        self._clock = clock
        self._turns = turns

    def handles(self, route: Route) -> bool:
        return route.subresource in ("binding", "eviction", "scale", "log", "token", *_REFUSED) or _is_binding(route)

    async def answer(self, route: Route, request: HttpRequest, query: Mapping[str, str], user: User) -> Response:
        if route.subresource in _REFUSED:
            await self._connect(route, query, user)
            raise status.ApiStatus(
                405, "MethodNotAllowed", f"this cluster simulates containers: {route.subresource} is not possible", {}
            )
        if route.subresource == "log":
            _only(route, "get")
            return await logs.read(self._object(route), self.log_source, query)
        accept = media_types.accept(request.headers.get("accept", ""))
        if route.subresource == "scale":
            return await self._scale(route, request, query, user, accept)
        _only(route, "create")
        options = write_options(query, user, request, "create")
        body = await read_object(self._turns, request)
        body = await self._turns.run(options.size, _typed, _KINDS.get(route.subresource, "Binding"), body)
        if route.subresource == "token":
            return with_warnings(rendering.answer(await self._token(route, body, options), accept, code=201), options)
        answer = await self._move(route, body, options)
        return with_warnings(rendering.answer(answer, accept, code=201), options)

    async def _connect(self, route: Route, query: Mapping[str, str], user: User) -> None:
        """Nothing can be connected to; what admission refuses is refused first."""
        self._object(route)
        given: Obj = {name: query[name] for name in ("container", "path") if query.get(name)}
        given |= {name: is_true(query[name]) for name in ("stdin", "stdout", "stderr", "tty") if name in query}
        if query.get("command"):
            given["command"] = [query["command"]]
        if query.get("ports", "").isdecimal():
            given["ports"] = [int(query["ports"])]
        await self._writer.admit("CONNECT", target(route), given, Options(user=user))

    async def _move(self, route: Route, body: Obj, options: Options) -> Obj:
        kind = "Eviction" if route.subresource == "eviction" else "Binding"
        meta = body.get("metadata") or {}
        pods = self._registry.find("", "v1", "pods")
        assert pods is not None
        name = route.name if not _is_binding(route) else str(meta.get("name") or "")
        where = Target(pods, route.namespace, name, kind.lower())
        if kind == "Binding" and meta.get("name") and meta["name"] != name:
            raise status.bad_request("name in URL does not match name in Binding object")
        seen = Target(route.resource, route.namespace, name) if _is_binding(route) else where
        typed = {"kind": "Binding", "apiVersion": "v1"} if kind == "Binding" else {}
        await self._writer.admit("CREATE", seen, {**typed, **body}, options)
        if kind == "Eviction":
            return await self._evictions.evict(where, body, options)
        return await binding.bind(self._writer, where, body, options, self._clock)

    async def _token(self, route: Route, body: Obj, options: Options) -> Obj:
        self._object(route)
        named = {**body, "metadata": {**(body.get("metadata") or {}), "name": route.name, "namespace": route.namespace}}
        await self._writer.admit("CREATE", target(route), named, options)
        if self.token_source is None:
            raise status.ApiStatus(503, "ServiceUnavailable", "this server issues no tokens", {})
        return await self.token_source(target(route), body)

    async def _scale(
        self, route: Route, request: HttpRequest, query: Mapping[str, str], user: User, accept: Accept
    ) -> Response:
        resource = route.resource
        if route.verb == "get":
            return rendering.answer(scale.of(resource, self._object(route)), accept)
        options = write_options(query, user, request, route.verb)
        if route.verb == "update":
            body = await read_object(self._turns, request)
            make: Callable[[Obj], Obj] = lambda _scale: _typed("Scale", body)  # noqa: E731
        elif route.verb == "patch":
            patched = await self._patcher.change(Target(_RESOURCES["Scale"], route.namespace, route.name), request)
            make = lambda scale: _typed("Scale", patched(scale))  # noqa: E731
        else:
            raise status.method_not_allowed()
        update = Update(scale.change(resource, make), admitted=scale.Admitted(resource))
        written = await self._writer.update(target(route), update, options)
        return with_warnings(rendering.answer(scale.of(resource, written.obj), accept), options)

    def _object(self, route: Route) -> Obj:
        namespace = route.namespace if route.resource.namespaced else ""
        stored = self._store.get(bucket_of(route.resource), namespace, route.name)
        if stored is None:
            raise status.not_found(route.resource, route.name)
        return self._versions.from_storage(route.resource, stored.decode())


def _is_binding(route: Route) -> bool:
    return (route.resource.group, route.resource.plural) == ("", "bindings")


def _only(route: Route, verb: str) -> None:
    if route.verb != verb:
        raise status.method_not_allowed()


def _typed(kind: str, body: Obj) -> Obj:
    """The body of a subresource as its own kind; a wrong type is a 400 as for every object."""
    given = body.get("kind")
    if given not in (None, "", kind):
        raise status.bad_request(f"{given} cannot be handled as a {kind}")
    return decoding.canonical(_RESOURCES[kind], body)[0]


def _resource(group: str, module: str, kind: str) -> Resource:
    return Resource(group, "v1", kind, f"{kind.lower()}s", kind.lower(), namespaced=True, model=f"{module}.{kind}")


_KINDS = {"token": "TokenRequest", "eviction": "Eviction", "binding": "Binding"}
_RESOURCES = {
    "Binding": _resource("", "core_v1", "Binding"),
    "Eviction": _resource("policy", "policy_v1", "Eviction"),
    "Scale": _resource("autoscaling", "autoscaling_v1", "Scale"),
    "TokenRequest": _resource("authentication.k8s.io", "authentication_v1", "TokenRequest"),
}
