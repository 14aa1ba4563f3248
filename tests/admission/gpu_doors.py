"""Manifests that would give a pod a GPU that is not allocated to it, and pods like them that are harmless."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.builders.pods import container, pod

Json = dict[str, Any]

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
SLICE = {"mig.das.com/1g.5gb": "1"}
MOUNTED = "/var/run/nvidia-container-devices"


@dataclass(frozen=True)
class Door:
    """A pod that is refused, and what the refusal says: the field with the value, and the fix."""

    body: Json
    says: str
    fix: str
    sent: bool = False
    """The webhook must review it first, so an outage refuses it for another reason."""


def variable(name: str, value: str | None = None, **more: Any) -> Json:
    return {"name": name, **({} if value is None else {"value": value}), **more}


def with_env(*variables: Json, **more: Any) -> Json:
    return pod("story", containers=[container(env=list(variables), **more)])


def with_path(path: str, **security: Any) -> Json:
    main = container(volumeMounts=[{"name": "host", "mountPath": "/host"}])
    if security:
        main["securityContext"] = security
    return pod("story", containers=[main], volumes=[{"name": "host", "hostPath": {"path": path}}])


def mounted_at(path: str) -> Json:
    main = container(volumeMounts=[{"name": "scratch", "mountPath": path}])
    return pod("story", containers=[main], volumes=[{"name": "scratch", "emptyDir": {}}])


def block_device(path: str) -> Json:
    claim = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
    return pod("story", containers=[container(volumeDevices=[{"name": "disk", "devicePath": path}])], volumes=[claim])


def _env(name: str, value: str) -> Door:
    return Door(
        with_env(variable(name, value)), f"spec.containers[main].env[{name}]: '{value}'", "set it to void or none"
    )


def _host(path: str, **security: Any) -> Door:
    return Door(
        with_path(path, **security), f"spec.volumes[host].hostPath.path: '{path}'", "apportion.io/gpu-guard=exempt"
    )


def _mount(path: str) -> Door:
    return Door(
        mounted_at(path), f"spec.containers[main].volumeMounts[scratch].mountPath: '{path}'", "use another path"
    )


def _annotation(name: str, value: str) -> Door:
    return Door(
        pod("story", containers=[container()], annotations={name: value}),
        f"metadata.annotations[{name}]: '{value}'",
        "remove the annotation",
    )


ENVIRONMENT = {
    "all devices": _env(VISIBLE, "all"),
    "one device": _env(VISIBLE, "0"),
    "upper case": _env(VISIBLE, "VOID"),
    "void and more": _env(VISIBLE, "void,0"),
    "a reference": _env(VISIBLE, "$(DEVICES)"),
    "imex channels": _env("NVIDIA_IMEX_CHANNELS", "0"),
    "mig configuration": _env("NVIDIA_MIG_CONFIG_DEVICES", "all"),
    "mig monitoring": _env("NVIDIA_MIG_MONITOR_DEVICES", "all"),
    "no value": Door(with_env(variable(VISIBLE)), f"spec.containers[main].env[{VISIBLE}]: ''", "remove this variable"),
    "from a configmap": Door(
        with_env(variable(VISIBLE, valueFrom={"configMapKeyRef": {"name": "a", "key": "b"}})),
        f"spec.containers[main].env[{VISIBLE}]: valueFrom",
        "remove this variable",
    ),
    "from a field": Door(
        with_env(variable(VISIBLE, valueFrom={"fieldRef": {"fieldPath": "metadata.name"}})),
        f"spec.containers[main].env[{VISIBLE}]: valueFrom",
        "remove this variable",
    ),
    "the second of two": Door(
        with_env(variable(VISIBLE, "void"), variable(VISIBLE, "all")),
        f"spec.containers[main].env[{VISIBLE}]: 'all'",
        "remove this variable",
    ),
    "init container": Door(
        pod("story", containers=[container()], init=[container("first", env=[variable(VISIBLE, "all")])]),
        f"spec.initContainers[first].env[{VISIBLE}]: 'all'",
        "remove this variable",
    ),
    "beside a gpu": Door(
        with_env(variable(VISIBLE, "all"), limits={"nvidia.com/gpu": "1"}),
        f"spec.containers[main].env[{VISIBLE}]: 'all'",
        "remove this variable",
        sent=True,
    ),
}
UNKNOWN_VARIABLES = [{"configMapRef": {"name": "devices"}}]
LARGE = pod("story", containers=[container(envFrom=UNKNOWN_VARIABLES, args=[""] * 50_000)])
"""A pod whose review takes long, so that its creator could let it fail."""
ANNOTATIONS = {
    "cdi": _annotation("cdi.k8s.io/mine", "nvidia.com/gpu=all"),
    "cri-o": _annotation("io.kubernetes.cri-o.Devices", "/dev/nvidia0:/dev/nvidia0:rwm"),
    "cri-o by number": _annotation("io.kubernetes.cri-o.Devices", "/dev/char/195:0"),
}
PATHS = {
    path: _host(path)
    for path in (
        "/dev/nvidia0",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia-caps-imex-channels",
        "//dev///nvidia0/",
        "/dev/./nvidia0",
        "/dev",
        "/dev/",
        "/dev/char/195:0",
        "/etc/cdi",
        "/var/run/cdi/",
        "/run/cdi/mine.json",
        "/var/run/nvidia-container-devices",
        "/run/nvidia/driver/dev",
        "/etc/nvidia-container-runtime/config.toml",
        "/usr/local/nvidia/toolkit/.config",
        "/var/lib/apportion",
        "/var/lib/kubelet/device-plugins/kubelet.sock",
        "/var/lib/kubelet/pod-resources",
        "/proc/1/root/dev",
    )
} | {"privileged": _host("/dev/nvidia0", privileged=True)}
MOUNTS = {
    path: _mount(path)
    for path in (f"{MOUNTED}/all", f"{MOUNTED}/imex/0", f"{MOUNTED}/cdi/nvidia.com/gpu/all", f"{MOUNTED[1:]}/0")
} | {
    "by a detour": _mount("/var/run/x/../nvidia-container-devices/all"),
    "block device": Door(
        block_device("/dev/nvidia0"),
        "spec.containers[main].volumeDevices[disk].devicePath: '/dev/nvidia0'",
        "use another path",
    ),
}
MEMORY = {
    "memory alone": Door(
        pod("story", containers=[container(limits={"gpu.das.com/mem": "40"})]),
        "spec.containers[main].resources.limits[gpu.das.com/mem]: '40'",
        "request a slice such as nvidia.com/mig-1g.5gb",
        sent=True,
    ),
    "beside no slice": Door(
        pod("story", containers=[container(limits={"gpu.das.com/mem": "40", "mig.das.com/1g.5gb": "0"})]),
        "spec.containers[main].resources.limits[gpu.das.com/mem]: '40'",
        "request a slice",
        sent=True,
    ),
    "beside the slice of another container": Door(
        pod(
            "story",
            containers=[container(limits=SLICE), container("other", limits={"gpu.das.com/mem": "40"})],
            schedulerName="das-scheduler",
        ),
        "spec.containers[other].resources.limits[gpu.das.com/mem]: '40'",
        "request a slice",
        sent=True,
    ),
    "init container": Door(
        pod("story", containers=[container()], init=[container("first", limits={"gpu.das.com/mem": "40"})]),
        "spec.initContainers[first].resources.limits[gpu.das.com/mem]: '40'",
        "request a slice",
        sent=True,
    ),
}
RUNTIME_CLASSES = {
    "nvidia": Door(
        pod("story", containers=[container()], runtimeClassName="nvidia"),
        "spec.runtimeClassName: 'nvidia': spec.containers[main] requests no GPU",
        "remove runtimeClassName",
    ),
    "share without effect": Door(
        pod("story", containers=[container()], runtimeClassName="nvidia", annotations={"gpu-fraction": "0.5"}),
        "spec.runtimeClassName: 'nvidia': spec.containers[main] requests no GPU",
        "request a GPU in resources.limits",
        sent=True,
    ),
}
DOORS = {
    f"{group}: {case}": door
    for group, doors in (
        ("environment", ENVIRONMENT),
        ("annotation", ANNOTATIONS),
        ("host path", PATHS),
        ("mount", MOUNTS),
        ("memory", MEMORY),
        ("runtime class", RUNTIME_CLASSES),
    )
    for case, door in doors.items()
}

HARMLESS: dict[str, Json] = {
    "void": with_env(variable(VISIBLE, "void")),
    "none": with_env(variable(VISIBLE, "none"), variable("NVIDIA_DRIVER_CAPABILITIES", "all")),
    "other variables": with_env(
        variable("MY_NVIDIA_VISIBLE_DEVICES", "all"), variable("nvidia_visible_devices", "all")
    ),
    "other annotation": pod("story", containers=[container()], annotations={"example.com/cdi.k8s.io": "x"}),
    "other cri-o device": pod(
        "story", containers=[container()], annotations={"io.kubernetes.cri-o.Devices": "/dev/fuse"}
    ),
    "other host paths": pod(
        "story",
        containers=[container()],
        volumes=[
            {"name": f"v{index}", "hostPath": {"path": path}}
            for index, path in enumerate(
                (
                    "/",
                    "/dev/null",
                    "/dev/fuse",
                    "/dev/nvme0n1",
                    "/development/nvidia0",
                    "/data/dev/nvidia0",
                    "/etc/cdi-example",
                    "/var/log",
                    "/var/lib/kubelet/pods",
                    "/var/lib/apportionment",
                    "/proc",
                    "/home/..data",
                )
            )
        ],
    ),
    "privileged node agent": with_path("/dev", privileged=True),
    "other device plugin": with_path("/var/lib/kubelet/device-plugins", privileged=True),
    "other mount": mounted_at("/var/run/my-nvidia-container-devices"),
    "block device": block_device("/dev/xvda"),
    "runtime class with void": pod(
        "story", containers=[container(env=[variable(VISIBLE, "void")])], runtimeClassName="nvidia"
    ),
    "no memory": pod("story", containers=[container(limits={"cpu": "1"})]),
}
"""Pods that never reach the webhook, so they are admitted during an outage, too."""
REVIEWED: dict[str, Json] = {
    "slice": pod("story", containers=[container(limits=SLICE)]),
    "slice with more memory": pod("story", containers=[container(limits=SLICE | {"gpu.das.com/mem": "40"})]),
    "static device with memory": pod(
        "story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "1", "gpu.das.com/mem": "5"})]
    ),
    "memory of nothing": pod("story", containers=[container(limits={"gpu.das.com/mem": "0"})]),
    "runtime class with a gpu": pod(
        "story", containers=[container(limits={"nvidia.com/gpu": "1"})], runtimeClassName="nvidia"
    ),
    "sidecar beside a gpu": pod(
        "story",
        containers=[container(limits={"nvidia.com/gpu": "1"}), container("sidecar")],
        init=[container("first")],
        runtimeClassName="nvidia",
    ),
    "share": pod(
        "story",
        containers=[container()],
        annotations={"gpu-fraction": "0.5"},
        schedulerName="kai-scheduler",
        runtimeClassName="nvidia",
    ),
}
"""Legitimate GPU pods, which the webhook reviews."""
