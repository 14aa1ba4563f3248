"""A real control plane of plain processes in a sandbox: etcd, kube-apiserver, controller-manager, scheduler.

The API server binds to the first address of the service range, so pods reach it with no kube-proxy, and calls
webhooks through the ready addresses of their EndpointSlices (`--enable-aggregator-routing`). The machine's own
network sees one loopback port, behind which the relay stands.
"""

from __future__ import annotations

import itertools
import json
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.environments import audit, binaries, credentials
from tests.environments.cluster import Cluster
from tests.environments.sandbox import Daemon, Sandbox
from tests.environments.sandbox_init import SERVICE_ADDRESS
from tests.environments.waiting import until

ADMIN = "admin"
CONTROLLERS = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
NODES = tuple(f"n{number}" for number in range(1, 5))
INSIDE = f"https://{SERVICE_ADDRESS}:443"
ETCD = "http://127.0.0.1:2379"


class ControlPlane(Cluster):
    """Up when constructed; `close` ends it with everything that stands on it."""

    kind = "real"

    def __init__(self, folder: Path, *, controllers: bool = True, without_admission: tuple[str, ...] = ()) -> None:
        """`controllers=False`: an API server alone, where nodes and pods are whatever a test says they are."""
        self._without_admission = without_admission
        self._expected: set[str] = set()
        self._node_numbers = itertools.count(1)
        self.sandbox = Sandbox(folder)
        try:
            self._make(controllers=controllers)
        except BaseException:
            self.sandbox.close()
            raise

    @property
    def enter(self) -> list[str]:
        """Command prefix for a process of the machine that shall share the cluster's network (a plane, say)."""
        return self.sandbox.enter

    def next_node_number(self) -> int:
        """Never one that was given before: folders and networks of nodes that are gone stay behind."""
        return next(self._node_numbers)

    def kubeconfig_of(self, user: str, name: str) -> Path:
        """For processes inside the sandbox: `system:node:n1` and the like."""
        return self.credentials.kubeconfig(user, INSIDE, name)

    def requests_of_service_accounts(self) -> list[dict[str, Any]]:
        """The audit trail: every finished request that a service account has made."""
        lines = self._audit.read_text().splitlines() if self._audit.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def forbidden(self) -> list[str]:
        """Requests of service accounts that a role or a policy refused, as sentences; not those of
        `expecting_refusals`."""
        return sorted(
            {
                f"{event['user']['username']} may not {event['verb']} {event['requestURI']}"
                for event in audit.refused_events(self.requests_of_service_accounts())
                if event["auditID"] not in self._expected
            }
        )

    @contextmanager
    def expecting_refusals(self) -> Iterator[None]:
        """Requests that are refused in this block are expected."""
        yield
        refused = audit.refused_events(self.requests_of_service_accounts())
        self._expected |= {event["auditID"] for event in refused}

    def close(self) -> None:
        self.sandbox.close()

    def _make(self, *, controllers: bool) -> None:
        self._audit = self.sandbox.logs / "audit.jsonl"
        users = {
            ADMIN: ("system:masters",),
            # Its controllers run under its own name here, which the roles of Kubernetes do not foresee.
            CONTROLLERS: ("system:masters",),
            SCHEDULER: (),
            **{f"system:node:{name}": ("system:nodes",) for name in NODES},
        }
        self.credentials = credentials.make(
            self.sandbox.data / "credentials", addresses=("127.0.0.1", SERVICE_ADDRESS), users=users
        )
        port = self._start_relay()
        super().__init__(self.credentials.kubeconfig(ADMIN, f"https://127.0.0.1:{port}", "admin"))
        self.etcd = self._start_etcd()
        self.api_server = self._start_api_server()
        self._await(self.api_server, lambda: self.api.send("GET", "/readyz") == "ok", "API server ready")
        if not controllers:
            return
        self.controllers = self._start_controllers()
        self.scheduler = self.start_scheduler()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._await(self.controllers, lambda: self.api.exists(account), "default service account")

    def _await(self, daemon: Daemon, check: Callable[[], bool], what: str) -> None:
        def checked() -> bool:
            daemon.expect_alive()
            return check()

        until(checked, what, within=60)

    def _start_relay(self) -> int:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port: int = listening.getsockname()[1]
            command: list[str | Path] = [sys.executable, "-I", Path(__file__).with_name("relay.py")]
            handed = [str(listening.fileno()), SERVICE_ADDRESS, "443"]
            self.relay = self.sandbox.start("relay", [*command, *handed], pass_fds=[listening.fileno()])
        return port

    def _start_etcd(self) -> Daemon:
        flags = {
            "data-dir": self.sandbox.data / "etcd",
            "listen-client-urls": ETCD,
            "advertise-client-urls": ETCD,
            "log-level": "warn",
        }
        return self.sandbox.start("etcd", [binaries.path("etcd"), "--unsafe-no-fsync", *_flags(flags)])

    def _start_api_server(self) -> Daemon:
        policy = self.sandbox.data / "audit-policy.json"
        policy.write_text(json.dumps(_AUDIT_POLICY))
        flags = {
            "etcd-servers": ETCD,
            "admission-control-config-file": self._admission_configuration(),
            "bind-address": SERVICE_ADDRESS,
            "advertise-address": SERVICE_ADDRESS,
            "secure-port": 443,
            "service-cluster-ip-range": "10.96.0.0/24",
            "endpoint-reconciler-type": "none",
            "tls-cert-file": self.credentials.server_certificate,
            "tls-private-key-file": self.credentials.server_key,
            "token-auth-file": self.credentials.token_file,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self.credentials.service_account_key,
            "service-account-signing-key-file": self.credentials.service_account_key,
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
            "kubelet-preferred-address-types": "InternalIP,Hostname",
            "enable-aggregator-routing": "true",
            "disable-admission-plugins": ",".join(self._without_admission),
            "audit-policy-file": policy,
            "audit-log-path": self._audit,
        }
        return self.sandbox.start("kube-apiserver", [binaries.path("kube-apiserver"), *_flags(flags)])

    def _admission_configuration(self) -> Path:
        """The API server presents its client certificate to every webhook."""
        certificate = str(self.credentials.webhook_client)
        user = {"client-certificate": certificate, "client-key": certificate}
        kubeconfig = self.sandbox.data / "webhooks.kubeconfig"
        config = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}
        kubeconfig.write_text(json.dumps(config))
        kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration"}
        plugins = [
            {"name": name, "configuration": kind | {"kubeConfigFile": str(kubeconfig)}}
            for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
        ]
        path = self.sandbox.data / "admission.json"
        kind["kind"] = "AdmissionConfiguration"
        path.write_text(json.dumps(kind | {"plugins": plugins}))
        return path

    def _start_controllers(self) -> Daemon:
        config = self.kubeconfig_of(CONTROLLERS, "controllers")
        flags = _client_flags(config) | {
            "service-account-private-key-file": self.credentials.service_account_key,
            "root-ca-file": self.credentials.ca,
        }
        return self.sandbox.start("kube-controller-manager", [binaries.path("kube-controller-manager"), *_flags(flags)])

    def start_scheduler(self, settings: dict[str, Any] | None = None) -> Daemon:
        """`settings`: a KubeSchedulerConfiguration, completed with how to connect."""
        config = self.kubeconfig_of(SCHEDULER, "scheduler")
        flags = _client_flags(config)
        if settings is not None:
            connection = {"kubeconfig": str(config), "qps": 500, "burst": 1000}
            kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
            complete = kind | {"clientConnection": connection, "leaderElection": {"leaderElect": False}} | settings
            path = self.sandbox.data / "scheduler.json"
            path.write_text(json.dumps(complete))
            flags = {"config": path, "bind-address": "127.0.0.1"}
        return self.sandbox.start("kube-scheduler", [binaries.path("kube-scheduler"), *_flags(flags)])


def _client_flags(kubeconfig: Path) -> dict[str, object]:
    return {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "bind-address": "127.0.0.1",
        "leader-elect": "false",
        "kube-api-qps": 500,
        "kube-api-burst": 1000,
    }


def _flags(values: dict[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]


_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}
