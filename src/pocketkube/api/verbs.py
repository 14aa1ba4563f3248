"""The verbs of resources: from a routed request to a response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apportion.cluster.transport import HttpRequest, Response
from pocketkube.api import media_types, status
from pocketkube.api.content import decoding
from pocketkube.api.content.conversion import bucket_of
from pocketkube.api.media_types import Accept
from pocketkube.api.patches.dispatch import Patcher
from pocketkube.api.registry import Resource
from pocketkube.api.rendering import EventRenderer, Renderer
from pocketkube.api.request_attributes import User
from pocketkube.api.routing import Route, is_true
from pocketkube.api.storage import listing, selectors
from pocketkube.api.storage.deletion import Deleter
from pocketkube.api.storage.selectors import Selection
from pocketkube.api.storage.store import Store
from pocketkube.api.storage.watching import LONGEST, Watches, WatchOptions
from pocketkube.api.storage.writer import Options, Target, Update, Writer, Written
from pocketkube.api.turns import Turns

Obj = dict[str, Any]
_AT_ONCE = 10
_FIELD_VALIDATION = ("Ignore", "Warn", "Strict")
_LONGEST_MANAGER = 128
_WARNINGS_LENGTH, _WARNING_LENGTH = 4096, 256  # characters
_DELETE_OPTIONS = Resource(
    "", "v1", "DeleteOptions", "deleteoptions", "", namespaced=False, model="meta_v1.DeleteOptions"
)
_DEPRECATED = {
    ("v1", "ComponentStatus"): "v1 ComponentStatus is deprecated in v1.19+",
    ("v1", "Endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}
# Kinds whose PUT creates what is not there.
_CREATE_ON_UPDATE = frozenset(
    {
        ("", "endpoints"),
        ("", "events"),
        ("", "limitranges"),
        ("", "services"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("rbac.authorization.k8s.io", "roles"),
    }
)


class Verbs:
    """get, list, watch, create, update, patch, delete and deletecollection of every resource."""

    def __init__(
        self,
        store: Store,
        renderer: Renderer,
        writer: Writer,
        deleter: Deleter,
        patcher: Patcher,
        watches: Watches,
        versions: Any,
        turns: Turns,
    ) -> None:
        self._store = store
        self._renderer = renderer
        self._writer = writer
        self._deleter = deleter
        self._patcher = patcher
        self._watches = watches
        self._versions = versions
        self._turns = turns

    async def answer(self, route: Route, request: HttpRequest, query: Mapping[str, str], user: User) -> Response:
        """The response of a verb on a collection, an object or its status."""
        response = await self._answer(route, request, query, user)
        if text := _DEPRECATED.get((route.resource.api_version, route.resource.kind)):
            earlier = response.headers.get("warning")
            response.headers = {**response.headers, "warning": "\n".join(filter(None, (f'299 - "{text}"', earlier)))}
        return response

    async def _answer(self, route: Route, request: HttpRequest, query: Mapping[str, str], user: User) -> Response:
        accept = media_types.accept(request.headers.get("accept", ""), stream=route.verb == "watch")
        match route.verb:
            case "get":
                return self.get(route, accept, query)
            case "list":
                return await self.list(route, accept, query)
            case "watch":
                return self.watch(route, accept, query)
            case "deletecollection":
                return await self.delete_collection(route, accept, request, query, user)
        options = write_options(query, user, request, route.verb)
        match route.verb:
            case "create":
                response = await self.create(route, accept, request, query, options)
            case "update":
                response = await self.update(route, accept, request, query, options)
            case "patch":
                written = await self._patcher.patch(target(route), request, options)
                response = await self._written(route.resource, written, accept, query)
            case _:
                response = await self.delete(route, accept, request, query, options)
        return with_warnings(response, options)

    def get(self, route: Route, accept: Accept, query: Mapping[str, str]) -> Response:
        asked = listing.parse_revision(query.get("resourceVersion", ""))
        if asked > self._store.revision:
            raise listing.future(asked, self._store.revision)
        namespace = route.namespace if route.resource.namespaced else ""
        stored = self._store.get(bucket_of(route.resource), namespace, route.name)
        if stored is None:
            raise status.not_found(route.resource, route.name)
        return self._renderer.stored(route.resource, stored, accept, query.get("includeObject", ""))

    async def list(self, route: Route, accept: Accept, query: Mapping[str, str]) -> Response:
        page = listing.page(
            self._store, bucket_of(route.resource), route.namespace, selection(route.resource, query), query
        )
        return await self._page(route.resource, page, accept, query)

    async def _page(self, resource: Resource, page: listing.Page, accept: Accept, query: Mapping[str, str]) -> Response:
        include = query.get("includeObject", "")
        if self._renderer.passes_on(resource, accept):
            return self._renderer.page(resource, page, accept, include)
        return await self._turns.run(page.size, self._renderer.page, resource, page, accept, include)

    def watch(self, route: Route, accept: Accept, query: Mapping[str, str]) -> Response:
        resource = route.resource
        chosen = selection(resource, query, name=route.name)
        render = EventRenderer(self._renderer, self._versions, resource, accept, query.get("includeObject", ""))
        stream = self._watches.open(
            bucket_of(resource),
            route.namespace if resource.namespaced else "",
            chosen,
            watch_options(query),
            render=render,
            bookmark=render.bookmark,
        )
        return Response(200, {"content-type": media_types.JSON}, stream=stream)

    async def create(
        self, route: Route, accept: Accept, request: HttpRequest, query: Mapping[str, str], options: Options
    ) -> Response:
        resource = route.resource
        if resource.namespaced and not route.namespace:
            raise status.method_not_allowed()
        body = await read_object(self._turns, request, resource.kind)
        await self._turns.run(options.size, note_duplicates, request, options, resource)
        _check_namespace(route, body)
        written = await self._writer.create(target(route), body, options)
        return await self._written(resource, written, accept, query)

    async def update(
        self, route: Route, accept: Accept, request: HttpRequest, query: Mapping[str, str], options: Options
    ) -> Response:
        body = await read_object(self._turns, request, route.resource.kind)
        await self._turns.run(options.size, note_duplicates, request, options, route.resource)
        _check_namespace(route, body)
        creates = (route.resource.group, route.resource.plural) in _CREATE_ON_UPDATE and not route.subresource
        change = Update(lambda _current: body, create=(lambda: body) if creates else None, replaced=True)
        written = await self._writer.update(target(route), change, options)
        return await self._written(route.resource, written, accept, query)

    async def delete(
        self, route: Route, accept: Accept, request: HttpRequest, query: Mapping[str, str], options: Options
    ) -> Response:
        body = await delete_options(self._turns, request, query)
        options.dry_run = options.dry_run or _dry_run(body.get("dryRun"))
        code, obj = await self._deleter.delete(target(route), body, options)
        return self._renderer.single(route.resource, obj, accept, query.get("includeObject", ""), code=code)

    async def delete_collection(
        self, route: Route, accept: Accept, request: HttpRequest, query: Mapping[str, str], user: User
    ) -> Response:
        resource = route.resource
        body = await delete_options(self._turns, request, query)
        options = write_options(query, user, request, "delete")
        options.dry_run = options.dry_run or _dry_run(body.get("dryRun"))
        page = listing.page(self._store, bucket_of(resource), route.namespace, selection(resource, query), query)
        for number, item in enumerate(page.items):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)  # other clients come in between
            each = Target(resource, item.key.namespace or route.namespace, item.key.name)
            try:
                await self._deleter.delete(each, body, options, of_collection=True)
            except status.ApiStatus as problem:
                if problem.reason != "NotFound":
                    raise
        return with_warnings(await self._page(resource, page, accept, query), options)

    async def _written(
        self, resource: Resource, written: Written, accept: Accept, query: Mapping[str, str]
    ) -> Response:
        code, include = 201 if written.created else 200, query.get("includeObject", "")
        single = self._renderer.single
        return await self._turns.run(written.size, single, resource, written.obj, accept, include, code=code)


def target(route: Route) -> Target:
    return Target(route.resource, route.namespace, route.name, route.subresource)


async def read_object(turns: Turns, request: HttpRequest, kind: str = "") -> Obj:
    """The object in the body of a request."""
    media = media_types.media_of(request.headers)
    return await turns.run(len(request.body or b""), media_types.decode_object, request.body, media, kind)


def write_options(query: Mapping[str, str], user: User, request: HttpRequest, verb: str) -> Options:
    """The query parameters that all writes share."""
    kind = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}.get(verb, "DeleteOptions")
    validation = query.get("fieldValidation", "") or "Warn"
    if validation not in _FIELD_VALIDATION:
        problem = f'Unsupported value: "{validation}": supported values: "", "Ignore", "Strict", "Warn"'
        raise listing.invalid_options(kind, "fieldValidation", problem)
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise listing.invalid_options(kind, "dryRun", f'Unsupported value: ["{dry_run}"]: supported values: "All"')
    manager, agent = query.get("fieldManager", ""), request.headers.get("user-agent", "")
    if len(manager) > _LONGEST_MANAGER:
        problem = f"Too long: may not be more than {_LONGEST_MANAGER} bytes"
        raise listing.invalid_options(kind, "fieldManager", problem)
    raw: Obj = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if dry_run:
        raw["dryRun"] = ["All"]
    if manager:
        raw["fieldManager"] = manager
    if query.get("fieldValidation"):
        raw["fieldValidation"] = validation
    return Options(
        user=user,
        dry_run=dry_run == "All",
        field_manager=manager or agent.partition("/")[0][:_LONGEST_MANAGER] or "unknown",
        explicit_manager=bool(manager),
        field_validation=validation,
        force=is_true(query.get("force")),
        raw=raw,
        size=len(request.body or b""),
    )


def selection(resource: Resource, query: Mapping[str, str], *, name: str = "") -> Selection:
    """The selectors of a list or watch; only fields that the kind offers."""
    labels = selectors.parse_labels(query.get("labelSelector", ""))
    fields = selectors.parse_fields(query.get("fieldSelector", ""))
    known = {*selectors.supported_fields(bucket_of(resource)), *resource.selectable_fields}
    for term in fields:
        if term.path not in known:
            if bucket_of(resource) not in selectors.WITH_OWN_FIELDS and not resource.custom:
                listed = '"metadata.name", "metadata.namespace"' if resource.namespaced else '"metadata.name"'
                raise status.bad_request(f'"{term.path}" is not a known field selector: only {listed}')
            raise status.bad_request(f"field label not supported: {term.path}")
    if name:
        fields = (*fields, selectors.FieldTerm("metadata.name", name, equal=True))
    return Selection(labels, fields)


def watch_options(query: Mapping[str, str]) -> WatchOptions:
    text = query.get("resourceVersion", "")
    revision = listing.parse_revision(text)
    initial = query.get("sendInitialEvents")
    if initial is not None and query.get("resourceVersionMatch") != "NotOlderThan":
        problem = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise listing.invalid_options("ListOptions", "resourceVersionMatch", problem)
    if initial is None and query.get("resourceVersionMatch"):
        problem = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        raise listing.invalid_options("ListOptions", "resourceVersionMatch", problem)
    seconds = listing.whole_number(query, "timeoutSeconds")
    since = None if revision == 0 or is_true(initial) else revision
    return WatchOptions(
        since=since,
        timeout=float(seconds) if seconds > 0 else LONGEST,
        bookmarks=is_true(query.get("allowWatchBookmarks")),
        initial_events_end=is_true(initial) and is_true(query.get("allowWatchBookmarks")),
    )


async def delete_options(turns: Turns, request: HttpRequest, query: Mapping[str, str]) -> Obj:
    """DeleteOptions from the body, or from the query where the body is empty."""
    body: Obj = {}
    if request.body:
        body = await read_object(turns, request, "DeleteOptions")
        kind = body.get("kind")
        if kind not in (None, "", "DeleteOptions"):
            raise status.bad_request(f"unable to decode the body of the request as DeleteOptions: it is a {kind}")
        return (await turns.run(len(request.body), decoding.canonical, _DELETE_OPTIONS, body))[0]
    if query.get("gracePeriodSeconds"):
        body["gracePeriodSeconds"] = listing.whole_number(query, "gracePeriodSeconds")
    if query.get("propagationPolicy"):
        body["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        body["orphanDependents"] = is_true(query["orphanDependents"])
    return body


def note_duplicates(request: HttpRequest, options: Options, resource: Resource) -> None:
    """Field names that occur twice in one JSON object: only looked for when the caller chose strictness."""
    if "fieldValidation" not in options.raw or options.field_validation == "Ignore":
        return
    found = media_types.duplicate_fields(request.body or b"")
    if not found:
        return
    if options.field_validation == "Strict":
        listed = ", ".join(f'duplicate field "{path}"' for path in found)
        raise status.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {listed}"
        )
    options.warnings.extend(f'duplicate field "{path}"' for path in found)


def with_warnings(response: Response, options: Options) -> Response:
    if options.warnings:
        texts = [_printable(text).replace("\\", "\\\\").replace('"', '\\"') for text in _short(options.warnings)]
        response.headers = {
            **response.headers,
            "warning": "\n".join(f'299 - "{text}"' for text in dict.fromkeys(texts)),
        }
    return response


def _printable(text: str) -> str:
    """A header has one line."""
    return "".join(character if character.isprintable() else " " for character in text).strip()


def _short(warnings: Sequence[str]) -> Iterator[str]:
    """Warnings as kube-apiserver cuts them where there are too many: each one, and all together."""
    if sum(map(len, warnings)) <= _WARNINGS_LENGTH:
        yield from warnings
        return
    left = _WARNINGS_LENGTH
    for text in dict.fromkeys(warnings):
        shown = text[:_WARNING_LENGTH]
        left -= len(shown)
        if left < 0:
            return
        yield shown


def _check_namespace(route: Route, body: Obj) -> None:
    meta = body.get("metadata")
    given = meta.get("namespace") if isinstance(meta, dict) else None
    if route.resource.namespaced and given and given != route.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _dry_run(value: object) -> bool:
    if value in (None, [], [""]):
        return False
    if value != ["All"]:
        raise listing.invalid_options("DeleteOptions", "dryRun", f'Unsupported value: {value}: supported values: "All"')
    return True
