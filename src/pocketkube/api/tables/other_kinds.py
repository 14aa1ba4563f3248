"""Tables of everything that is neither a workload nor about the network."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pocketkube.api.tables import cells, durations
from pocketkube.api.tables.cells import Obj, Row

# `+` marks columns of `-o wide`; a type other than string stands behind a colon.
COLUMNS: dict[str, str] = {
    "core_v1.ComponentStatus": "Name,Status,Message,Error",
    "core_v1.ConfigMap": "Name,Data,Age",
    "core_v1.Event": ("Last Seen,Type,Reason,Object,Subobject+,Source+,Message,First Seen+,Count+,Name+"),
    "core_v1.Namespace": "Name,Status,Age",
    "core_v1.Node": (
        "Name,Status,Roles,Age,Version,Internal-IP+,External-IP+,OS-Image+,Kernel-Version+,Container-Runtime+"
    ),
    "core_v1.PersistentVolume": (
        "Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,VolumeAttributesClass,"
        "Reason,Age,VolumeMode+"
    ),
    "core_v1.PersistentVolumeClaim": (
        "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,VolumeMode+"
    ),
    "core_v1.ResourceQuota": "Name,Request,Limit,Age",
    "core_v1.Secret": "Name,Type,Data,Age",
    "core_v1.ServiceAccount": "Name,Secrets,Age",
    "admissionregistration_v1.MutatingWebhookConfiguration": "Name,Webhooks:integer,Age",
    "admissionregistration_v1.ValidatingWebhookConfiguration": "Name,Webhooks:integer,Age",
    "admissionregistration_v1.ValidatingAdmissionPolicy": "Name,Validations:integer,ParamKind,Age",
    "admissionregistration_v1.ValidatingAdmissionPolicyBinding": "Name,PolicyName,ParamRef,Age",
    "certificates_v1.CertificateSigningRequest": "Name,Age,SignerName,Requestor,RequestedDuration,Condition",
    "coordination_v1.Lease": "Name,Holder,Age",
    "node_v1.RuntimeClass": "Name,Handler,Age",
    "rbac_v1.ClusterRoleBinding": "Name,Role,Age,Users+,Groups+,ServiceAccounts+",
    "rbac_v1.RoleBinding": "Name,Role,Age,Users+,Groups+,ServiceAccounts+",
    "resource_v1.DeviceClass": "Name,Age",
    "resource_v1.ResourceClaim": "Name,State,Age",
    "resource_v1.ResourceClaimTemplate": "Name,Age",
    "resource_v1.ResourceSlice": "Name,Node,Driver,Pool,Age",
    "scheduling_v1.PriorityClass": "Name,Value:integer,Global-Default:boolean,Age,PreemptionPolicy",
    "storage_v1.CSIDriver": (
        "Name,AttachRequired:boolean,PodInfoOnMount:boolean,StorageCapacity:boolean,TokenRequests,"
        "RequiresRepublish:boolean,Modes,Age"
    ),
    "storage_v1.CSINode": "Name,Drivers:integer,Age",
    "storage_v1.StorageClass": "Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age",
    "storage_v1.VolumeAttachment": "Name,Attacher,PV,Node,Attached:boolean,Age",
    "storage_v1.VolumeAttributesClass": "Name,DriverName,Age",
}


def _node(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    ready = [each for each in status.get("conditions") or () if each.get("type") == "Ready"]
    states = [("Ready" if ready[-1].get("status") == "True" else "NotReady") if ready else "Unknown"]
    if spec.get("unschedulable"):
        states.append("SchedulingDisabled")
    info = status.get("nodeInfo") or {}
    addresses: dict[str, str] = {}
    for address in status.get("addresses") or ():
        addresses.setdefault(address.get("type", ""), address.get("address", ""))
    return [
        cells.name(obj),
        ",".join(states),
        _roles(cells.part(obj, "metadata").get("labels") or {}),
        cells.age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", cells.NONE),
        addresses.get("ExternalIP", cells.NONE),
        *(info.get(field) or cells.UNKNOWN for field in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _roles(labels: Obj) -> str:
    prefix = "node-role.kubernetes.io/"
    found = {key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix}
    if labels.get("kubernetes.io/role"):
        found.add(labels["kubernetes.io/role"])
    return ",".join(sorted(found)) or cells.NONE


def _event(obj: Obj, now: datetime) -> list[Any]:
    first = durations.age(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = durations.age(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    count = obj.get("count") or 1
    if series := obj.get("series"):
        last, count = durations.age(series.get("lastObservedTime"), now), series.get("count", 0)
    about = cells.part(obj, "involvedObject")
    target = about.get("kind", "").lower() + (f"/{about['name']}" if about.get("name") else "")
    source = cells.part(obj, "source")
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        target,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        obj.get("message", "").strip(),
        first,
        count,
        cells.name(obj),
    ]


def _namespace(obj: Obj, now: datetime) -> list[Any]:
    return [cells.name(obj), cells.part(obj, "status").get("phase", ""), cells.age(obj, now)]


def _secret(obj: Obj, now: datetime) -> list[Any]:
    return [cells.name(obj), obj.get("type", ""), len(obj.get("data") or ()), cells.age(obj, now)]


def _config_map(obj: Obj, now: datetime) -> list[Any]:
    return [cells.name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), cells.age(obj, now)]


def _service_account(obj: Obj, now: datetime) -> list[Any]:
    return [cells.name(obj), len(obj.get("secrets") or ()), cells.age(obj, now)]


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _volume(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    claim = spec.get("claimRef")
    phase = "Terminating" if cells.part(obj, "metadata").get("deletionTimestamp") else status.get("phase", "")
    return [
        cells.name(obj),
        (spec.get("capacity") or {}).get("storage", "0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", cells.UNSET),
        status.get("reason", ""),
        cells.age(obj, now),
        spec.get("volumeMode", cells.UNSET),
    ]


def _claim(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    phase = "Terminating" if cells.part(obj, "metadata").get("deletionTimestamp") else status.get("phase", "")
    volume = spec.get("volumeName", "")
    return [
        cells.name(obj),
        phase,
        volume,
        (status.get("capacity") or {}).get("storage", "0") if volume else "",
        _modes(status.get("accessModes")) if volume else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", cells.UNSET),
        cells.age(obj, now),
        spec.get("volumeMode", cells.UNSET),
    ]


def _quota(obj: Obj, now: datetime) -> list[Any]:
    status = cells.part(obj, "status")
    hard, used = status.get("hard") or {}, status.get("used") or {}
    limits = {name for name in hard if name.startswith("limits.")}
    columns = [
        ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(names))
        for names in (set(hard) - limits, limits)
    ]
    return [cells.name(obj), *columns, cells.age(obj, now)]


def _policy(obj: Obj, now: datetime) -> list[Any]:
    spec = cells.part(obj, "spec")
    kind = spec.get("paramKind")
    shown = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else cells.UNSET
    return [cells.name(obj), len(spec.get("validations") or ()), shown, cells.age(obj, now)]


def _policy_binding(obj: Obj, now: datetime) -> list[Any]:
    spec = cells.part(obj, "spec")
    reference = spec.get("paramRef")
    shown = cells.UNSET
    if reference is not None and reference.get("name"):
        shown = f"{reference.get('namespace') or '*'}/{reference['name']}"
    elif reference is not None:
        shown = f"{reference.get('namespace') or '*'}/{reference.get('selector')}"
    return [cells.name(obj), spec.get("policyName", ""), shown, cells.age(obj, now)]


def _webhooks(obj: Obj, now: datetime) -> list[Any]:
    return [cells.name(obj), len(obj.get("webhooks") or ()), cells.age(obj, now)]


def _signing_request(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    types = {each.get("type") for each in status.get("conditions") or ()}
    state = next((each for each in ("Denied", "Approved") if each in types), "Pending")
    state += ",Failed" if "Failed" in types else ""
    state += ",Issued" if status.get("certificate") else ""
    lasts = durations.human(timedelta(seconds=spec["expirationSeconds"])) if "expirationSeconds" in spec else cells.NONE
    signer = spec.get("signerName") or cells.NONE
    return [cells.name(obj), cells.age(obj, now), signer, spec.get("username", ""), lasts, state]


def _lease(obj: Obj, now: datetime) -> list[Any]:
    return [cells.name(obj), cells.part(obj, "spec").get("holderIdentity", ""), cells.age(obj, now)]


def _runtime_class(obj: Obj, now: datetime) -> list[Any]:
    return [cells.name(obj), obj.get("handler", ""), cells.age(obj, now)]


def _binding(obj: Obj, now: datetime) -> list[Any]:
    role, subjects = cells.part(obj, "roleRef"), obj.get("subjects") or []
    listed = {
        kind: ", ".join(_subject(each) for each in subjects if each.get("kind") == kind)
        for kind in ("User", "Group", "ServiceAccount")
    }
    return [cells.name(obj), f"{role.get('kind')}/{role.get('name')}", cells.age(obj, now), *listed.values()]


def _subject(subject: Obj) -> str:
    prefix = f"{subject.get('namespace')}/" if subject.get("kind") == "ServiceAccount" else ""
    return f"{prefix}{subject.get('name', '')}"


def _plain(obj: Obj, now: datetime) -> list[Any]:
    return [cells.name(obj), cells.age(obj, now)]


def _resource_claim(obj: Obj, now: datetime) -> list[Any]:
    status = cells.part(obj, "status")
    deleted = bool(cells.part(obj, "metadata").get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is None:
        states += [] if deleted else ["pending"]
    else:
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    return [cells.name(obj), ",".join(states), cells.age(obj, now)]


def _resource_slice(obj: Obj, now: datetime) -> list[Any]:
    spec = cells.part(obj, "spec")
    pool = cells.part(spec, "pool").get("name", "")
    return [cells.name(obj), spec.get("nodeName", ""), spec.get("driver", ""), pool, cells.age(obj, now)]


def _priority_class(obj: Obj, now: datetime) -> list[Any]:
    default = bool(obj.get("globalDefault"))
    return [cells.name(obj), obj.get("value", 0), default, cells.age(obj, now), obj.get("preemptionPolicy", "")]


def _csi_driver(obj: Obj, now: datetime) -> list[Any]:
    spec = cells.part(obj, "spec")
    flags = [bool(spec.get(field)) for field in ("attachRequired", "podInfoOnMount", "storageCapacity")]
    tokens = ",".join(each.get("audience", "") for each in spec.get("tokenRequests") or ()) or cells.UNSET
    modes = ",".join(spec.get("volumeLifecycleModes") or ()) or cells.NONE
    return [cells.name(obj), *flags, tokens, bool(spec.get("requiresRepublish")), modes, cells.age(obj, now)]


def _csi_node(obj: Obj, now: datetime) -> list[Any]:
    return [cells.name(obj), len(cells.part(obj, "spec").get("drivers") or ()), cells.age(obj, now)]


def _storage_class(obj: Obj, now: datetime) -> list[Any]:
    annotations = cells.part(obj, "metadata").get("annotations") or {}
    default = " (default)" if annotations.get("storageclass.kubernetes.io/is-default-class") == "true" else ""
    return [
        cells.name(obj) + default,
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        bool(obj.get("allowVolumeExpansion")),
        cells.age(obj, now),
    ]


def _volume_attachment(obj: Obj, now: datetime) -> list[Any]:
    spec = cells.part(obj, "spec")
    volume = cells.part(spec, "source").get("persistentVolumeName", "")
    attached = bool(cells.part(obj, "status").get("attached"))
    return [cells.name(obj), spec.get("attacher", ""), volume, spec.get("nodeName", ""), attached, cells.age(obj, now)]


def _volume_attributes_class(obj: Obj, now: datetime) -> list[Any]:
    return [cells.name(obj), obj.get("driverName", ""), cells.age(obj, now)]


def _component(obj: Obj, _: datetime) -> list[Any]:
    healthy: Obj = next((each for each in obj.get("conditions") or () if each.get("type") == "Healthy"), {})
    state = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [cells.name(obj), state, healthy.get("message", ""), healthy.get("error", "")]


ROWS: dict[str, Row] = {
    "core_v1.ComponentStatus": _component,
    "core_v1.ConfigMap": _config_map,
    "core_v1.Event": _event,
    "core_v1.Namespace": _namespace,
    "core_v1.Node": _node,
    "core_v1.PersistentVolume": _volume,
    "core_v1.PersistentVolumeClaim": _claim,
    "core_v1.ResourceQuota": _quota,
    "core_v1.Secret": _secret,
    "core_v1.ServiceAccount": _service_account,
    "admissionregistration_v1.MutatingWebhookConfiguration": _webhooks,
    "admissionregistration_v1.ValidatingWebhookConfiguration": _webhooks,
    "admissionregistration_v1.ValidatingAdmissionPolicy": _policy,
    "admissionregistration_v1.ValidatingAdmissionPolicyBinding": _policy_binding,
    "certificates_v1.CertificateSigningRequest": _signing_request,
    "coordination_v1.Lease": _lease,
    "node_v1.RuntimeClass": _runtime_class,
    "rbac_v1.ClusterRoleBinding": _binding,
    "rbac_v1.RoleBinding": _binding,
    "resource_v1.DeviceClass": _plain,
    "resource_v1.ResourceClaim": _resource_claim,
    "resource_v1.ResourceClaimTemplate": _plain,
    "resource_v1.ResourceSlice": _resource_slice,
    "scheduling_v1.PriorityClass": _priority_class,
    "storage_v1.CSIDriver": _csi_driver,
    "storage_v1.CSINode": _csi_node,
    "storage_v1.StorageClass": _storage_class,
    "storage_v1.VolumeAttachment": _volume_attachment,
    "storage_v1.VolumeAttributesClass": _volume_attributes_class,
}
