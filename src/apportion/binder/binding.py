"""Carrying out one BindRequest: reservations, labels, ConfigMap, and last the binding. Rules G05, G06.

A `pod-group-name` annotation of the request goes to the pod with its binding.

Every step is found done if it was done, by this process or by one that was killed. While a reservation has no GPU,
nothing runs: a change of the reservation brings the request back. A request that cannot be carried out fails with the
reason; its pod is then taken off the reservations where those are reconciled.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from apportion.apis import names
from apportion.apis.custom_resources.bind_requests import FAILED, BindRequest
from apportion.apis.errors import InputError
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.kinds import BIND_REQUESTS, PODS
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import SharedGpu, Sharer, config_map_name, encode_shared_gpus, is_slot
from apportion.apis.shares import Share, decimal, read_share
from apportion.binder import metrics
from apportion.binder.config_maps import ConfigMaps, content
from apportion.binder.events import Reports
from apportion.binder.group_labels import GroupLabels
from apportion.binder.informers import Informers
from apportion.binder.joining import LOOK_AGAIN_SECONDS, Attempt, Held, Joining, Waits, Wanted
from apportion.binder.leased_writes import LeasedWrites
from apportion.binder.patience import Patience
from apportion.binder.refusals import REFUSED_BY_SERVER, CannotBind, NotWanted
from apportion.binder.sharing_config import SharingConfig
from apportion.cluster import clock, errors
from apportion.cluster.client import Client

log = logging.getLogger(__name__)

Key = tuple[str, str]


class Binding:
    """Reconciles BindRequests by namespace and name."""

    def __init__(
        self,
        client: Client,
        writes: LeasedWrites,
        informers: Informers,
        *,
        joining: Joining,
        config_maps: ConfigMaps,
        labels: GroupLabels,
        config: SharingConfig,
        patience: Patience,
        reports: Reports,
    ) -> None:
        self._client = client
        self._writes = writes
        self._informers = informers
        self._joining = joining
        self._config_maps = config_maps
        self._labels = labels
        self._config = config
        self._patience = patience
        self._reports = reports
        self._seen: dict[str, float] = {}  # uid of a request -> when it was first observed
        self._done: set[str] = set()  # uids of requests that this process carried out
        self._attempts: dict[str, Attempt] = {}  # by uid of a request that waits for a GPU
        informers.requests.on_change(self._request_changed)

    async def reconcile(self, key: Key) -> float | None:
        request = self._informers.requests.get(key[1], key[0])
        if request is None or request.failed or self._is_done(request):
            return None
        try:
            return await self._bind(request)
        except CannotBind as error:
            await self._fail(request, str(error))
        except NotWanted:
            log.info("pod %s/%s: its BindRequest was withdrawn, the pod was not bound to a GPU", *key)
        return None

    def _is_done(self, request: BindRequest) -> bool:
        pod = self._informers.pod(PodUID(request.spec.pod_uid))
        bound = pod is not None and pod.spec.node_name == request.spec.selected_node
        return bound or request.metadata.uid in self._done

    async def _bind(self, request: BindRequest) -> float | None:
        known = self._joining.waits(request)
        if known is not None and self._patience.left(known.key) > 0:
            return self._patience.left(known.key)
        attempt = self._attempts.pop(request.metadata.uid, None) or Attempt(await self._unbound(request))
        pod = attempt.pod
        if pod.spec.node_name:
            self._done.add(request.metadata.uid)
            return None
        share = _share(pod, request)
        held: list[Held] = []
        waits: list[Waits] = []
        for wanted in _wanted(request, pod, share):
            joined = await self._joining.join(wanted, attempt)
            if isinstance(joined, Held):
                held.append(joined)
            else:
                waits.append(joined)
        if waits:
            left = self._wait(request, waits)
            self._attempts[request.metadata.uid] = attempt
            return left
        await self._write(request, attempt, share, held)
        return None

    async def _unbound(self, request: BindRequest) -> Pod:
        """The pod as the informer shows it, which is enough to begin with: it is labelled at that version only."""
        seen = self._informers.unbound.get(request.spec.pod_name, request.metadata.namespace)
        if seen is None or seen.metadata.uid != request.spec.pod_uid or seen.metadata.deleting:
            return await self._pod(request)
        return seen

    async def _pod(self, request: BindRequest) -> Pod:
        """The very pod, as the server has it."""
        spec, namespace = request.spec, request.metadata.namespace
        try:
            pod = await self._client.get(PODS, spec.pod_name, namespace=namespace, into=Pod)
        except errors.NotFound:
            raise CannotBind("the pod does not exist any more") from None
        if pod.metadata.uid != spec.pod_uid:
            raise CannotBind(f"the pod with uid {spec.pod_uid} does not exist any more")
        if pod.spec.node_name not in ("", spec.selected_node):
            raise CannotBind(f"the pod is bound to node {pod.spec.node_name} already")
        if pod.metadata.deleting and not pod.spec.node_name:
            raise CannotBind("the pod is being deleted")
        return pod

    def _wait(self, request: BindRequest, waits: Sequence[Waits]) -> float:
        left, why = min((self._patience.left(wait.key), wait.why) for wait in waits)
        if left <= 0:
            raise CannotBind(f"{why} after {self._config.allocation_seconds:.0f} s")
        log.debug("pod %s/%s waits: %s", request.metadata.namespace, request.spec.pod_name, why)
        return min(left, LOOK_AGAIN_SECONDS) if any(wait.unseen for wait in waits) else left

    async def _write(self, request: BindRequest, attempt: Attempt, share: Share, held: Sequence[Held]) -> None:
        spec, pod = request.spec, attempt.pod
        version = await self._label(request, attempt, share)
        await self._write_config_map(request, pod, share, held)
        try:
            await self._writes.bind(pod, spec.selected_node, version, _annotations(request, held))
        except REFUSED_BY_SERVER as error:
            raise CannotBind(f"the API server refused the binding: {error}") from error
        self._bound(request, pod, held)

    async def _label(self, request: BindRequest, attempt: Attempt, share: Share) -> str:
        """The version at which the pod has its labels, for a request that was valid until then.

        The pod may have been read before a wait; a change of its status meanwhile does not matter."""
        groups, uid = request.spec.selected_gpu_groups, request.metadata.uid
        try:
            version = await self._labels.add(attempt.pod, groups, uid)
            if attempt.added_to.issuperset(groups):
                return version  # nobody has given the pod up since it was read
        except errors.Conflict:
            current = await self._pod(request)
            if current.spec.node_name or read_share(current) != share:
                raise
            version = await self._labels.add(current, groups, uid)
        await self._check_valid(request, attempt.pod)
        return version

    async def _write_config_map(self, request: BindRequest, pod: Pod, share: Share, held: Sequence[Held]) -> None:
        portion = decimal(min(each.milli for each in held))
        data = content([each.uuid for each in held], portion, cdi=self._config.cdi_enabled)
        try:
            await self._config_maps.ensure(
                pod,
                share,
                data,
                request_uid=request.metadata.uid,
                check_valid=lambda: self._check_valid(request, pod),
            )
        except REFUSED_BY_SERVER as error:
            raise CannotBind(f"the ConfigMap with the GPUs of the pod cannot be created: {error}") from error

    async def _check_valid(self, request: BindRequest, pod: Pod) -> None:
        """Asks the server, after the pod got its labels and before it is bound at that version."""
        meta = request.metadata
        try:
            current = await self._client.get(BIND_REQUESTS, meta.name, namespace=meta.namespace, into=BindRequest)
        except errors.NotFound:
            current = None
        if current is not None and current.metadata.uid == meta.uid and not current.failed:
            return
        if current is None or current.failed:
            for group in request.spec.selected_gpu_groups:
                await self._labels.remove(pod.uid, Sharer(meta.namespace, pod.metadata.name), group)
        raise NotWanted

    def _bound(self, request: BindRequest, pod: Pod, held: Sequence[Held]) -> None:
        uid = request.metadata.uid
        self._done.add(uid)
        metrics.BINDINGS.labels("bound").inc()
        metrics.BIND_SECONDS.observe(clock.elapsed() - self._seen.get(uid, clock.elapsed()))
        self._reports.bound(pod, request.spec.selected_node, held)

    async def _fail(self, request: BindRequest, reason: str) -> None:
        meta, status = request.metadata, {"phase": FAILED, "reason": reason}
        patch = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {**status, "failedAttempts": request.status.failed_attempts + 1},
        }
        try:
            await self._writes.patch(BIND_REQUESTS, meta.name, patch, meta.namespace, subresource="status")
        except errors.NotFound:
            return
        metrics.BINDINGS.labels("failed").inc()
        self._reports.failed(request, reason)

    def _request_changed(self, old: BindRequest | None, new: BindRequest | None) -> None:
        if new is not None:
            self._seen.setdefault(new.metadata.uid, clock.elapsed())
        elif old is not None:
            self._seen.pop(old.metadata.uid, None)
            self._done.discard(old.metadata.uid)
            self._attempts.pop(old.metadata.uid, None)


def _annotations(request: BindRequest, held: Sequence[Held]) -> dict[str, str]:
    """What is written on the pod together with its node."""
    gpus = [SharedGpu(each.group, each.device, each.mib, each.uuid if is_slot(each.device) else "") for each in held]
    found = {names.RECEIVED_RESOURCE_TYPE: names.FRACTION, names.SHARED_GPUS: encode_shared_gpus(gpus)}
    group = request.metadata.annotations.get(names.POD_GROUP)
    return found if group is None else {**found, names.POD_GROUP: group}


def _share(pod: Pod, request: BindRequest) -> Share:
    spec = request.spec
    try:
        share = read_share(pod)
        if share is not None:
            config_map_name(pod, share)
    except InputError as error:
        raise CannotBind(str(error)) from error
    if share is None:
        raise CannotBind("the pod does not request a share of a GPU")
    groups, devices = spec.selected_gpu_groups, spec.selected_devices
    if not len(set(groups)) == len(groups) == len(devices) == share.devices:
        raise CannotBind(
            f"the pod requests {share.devices} GPUs, the BindRequest has {len(groups)} groups and {len(devices)} GPUs"
        )
    return share


def _wanted(request: BindRequest, pod: Pod, share: Share) -> list[Wanted]:
    spec, sharer = request.spec, Sharer.of(pod, share)
    places = zip(spec.selected_gpu_groups, spec.selected_devices, strict=True)
    node = NodeName(spec.selected_node)
    return [Wanted(pod.uid, sharer, node, group, DeviceUUID(device)) for group, device in places]
