"""Defaults of pods and of every pod template: what kube-apiserver 1.34 fills in when a field is left out."""

from __future__ import annotations

import re
from typing import Any

from pocketkube.api.content import canonical_quantities

Obj = dict[str, Any]

TERMINATION_GRACE_SECONDS = 30
TOKEN_LIFETIME_SECONDS = 3600
FILE_MODE = 0o644

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_VOLUME_SOURCES_WITH_MODE = ("configMap", "secret", "downwardAPI", "projected")
_TAG = re.compile(r":(?P<tag>[\w][\w.-]*)$")


def pod(obj: Obj) -> None:
    """A pod itself: requests follow limits, and host ports follow container ports."""
    spec = obj.setdefault("spec", {})
    pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for each in _containers(spec, "initContainers", "containers"):
        resources = each["resources"]
        if limits := resources.get("limits"):
            resources["requests"] = limits | (resources.get("requests") or {})
        if spec.get("hostNetwork"):
            for port in each.get("ports") or ():
                port["hostPort"] = port.get("hostPort") or port.get("containerPort", 0)
    _pod_level_requests(spec)
    for condition in (obj.get("status") or {}).get("conditions") or ():
        condition.setdefault("lastProbeTime", None)  # never left out of an answer


def pod_template(template: Obj) -> None:
    pod_spec(template.setdefault("spec", {}))


def pod_spec(spec: Obj) -> None:
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", TERMINATION_GRACE_SECONDS)
    spec.setdefault("schedulerName", "default-scheduler")
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    if "overhead" in spec:
        _round_up(spec["overhead"])
    for each in _containers(spec, *_CONTAINER_LISTS):
        container(each)
    for volume in spec.get("volumes") or ():
        _volume(volume)


def container(obj: Obj) -> None:
    obj.setdefault("imagePullPolicy", pull_policy(obj.get("image") or ""))
    obj.setdefault("terminationMessagePath", "/dev/termination-log")
    obj.setdefault("terminationMessagePolicy", "File")
    resources = obj.setdefault("resources", {})
    for amounts in ("limits", "requests"):
        _round_up(resources.get(amounts) or {})
    for port in obj.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in obj.get("env") or ():
        if field := (variable.get("valueFrom") or {}).get("fieldRef"):
            field.setdefault("apiVersion", "v1")
        if file := (variable.get("valueFrom") or {}).get("fileKeyRef"):
            file.setdefault("optional", False)
    for name in _PROBES:
        if name in obj:
            _probe(obj[name])
    for handler in (obj.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _http_get(handler)


def pull_policy(image: str) -> str:
    """Always for an image without a tag or digest or tagged `latest`."""
    name = image.rpartition("@")
    if name[1]:
        return "IfNotPresent"
    tag = _TAG.search(image.rpartition("/")[2])
    return "Always" if tag is None or tag["tag"] == "latest" else "IfNotPresent"


def claim_spec(spec: Obj) -> None:
    """The spec of a PersistentVolumeClaim, also inside templates."""
    spec.setdefault("volumeMode", "Filesystem")


def _containers(spec: Obj, *lists: str) -> list[Obj]:
    return [each for name in lists for each in spec.get(name) or ()]


def _round_up(amounts: Obj) -> None:
    """Resource lists are kept in thousandths."""
    for name, value in amounts.items():
        amounts[name] = canonical_quantities.canonical(value, milli=True)


def _probe(probe: Obj) -> None:
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe[name] = probe.get(name) or value
    _http_get(probe)
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _http_get(handler: Obj) -> None:
    if "httpGet" in handler:
        handler["httpGet"]["path"] = handler["httpGet"].get("path") or "/"
        handler["httpGet"]["scheme"] = handler["httpGet"].get("scheme") or "HTTP"


def _volume(volume: Obj) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for source in _VOLUME_SOURCES_WITH_MODE:
        if source in volume:
            volume[source].setdefault("defaultMode", FILE_MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if "image" in volume:
        volume["image"].setdefault("pullPolicy", pull_policy(volume["image"].get("reference") or ""))
    if "iscsi" in volume:
        volume["iscsi"].setdefault("iscsiInterface", "default")
    if template := (volume.get("ephemeral") or {}).get("volumeClaimTemplate"):
        claim_spec(template.setdefault("spec", {}))
    _downward_files(volume.get("downwardAPI") or {})
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", TOKEN_LIFETIME_SECONDS)
        _downward_files(source.get("downwardAPI") or {})


def _downward_files(source: Obj) -> None:
    for item in source.get("items") or ():
        if "fieldRef" in item:
            item["fieldRef"].setdefault("apiVersion", "v1")


def _pod_level_requests(spec: Obj) -> None:
    """Pod-level limits without requests: the requests are those limits where no container asks for any."""
    resources = spec.get("resources") or {}
    if limits := resources.get("limits"):
        asked = {name for each in _containers(spec, "initContainers", "containers") for name in _requests(each)}
        defaults = {name: value for name, value in limits.items() if name not in asked}
        resources["requests"] = defaults | (resources.get("requests") or {})


def _requests(container: Obj) -> Obj:
    found: Obj = container["resources"].get("requests") or {}
    return found
