"""The namespaces, the image and the object names of one installation of Apportion.

Every plane and command takes one `Installation` instead of the names themselves. The defaults are those of the shipped
manifests. Names that can differ between installations reach a process through its environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apportion.apis import names

NAMESPACE_ENV = "APPORTION_NAMESPACE"
FALLBACK_NAMESPACE_ENV = "APPORTION_FALLBACK_NAMESPACE"
_ENVIRONMENT = {
    NAMESPACE_ENV: "namespace",
    FALLBACK_NAMESPACE_ENV: "fallback_namespace",
    "APPORTION_SHARING_NAMESPACE": "sharing_namespace",
    "APPORTION_RESERVATION_NAMESPACE": "reservation_namespace",
    "APPORTION_IMAGE": "image",
}


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What a plane must know to find the objects of the others."""

    namespace: str = names.DAS_NAMESPACE  # planes, claims, NodeAccelerators and the Lease
    fallback_namespace: str = names.FALLBACK_NAMESPACE  # the fallback webhook and its promises
    sharing_namespace: str = names.KAI_NAMESPACE  # the binder and its Lease
    reservation_namespace: str = names.RESERVATION_NAMESPACE  # reservation pods of shared GPUs
    image: str = names.IMAGE  # its containers run as child processes on an embedded cluster

    operator_object: str = names.DAS_OPERATOR_OBJECT
    operator_deployment: str = names.OPERATOR_DEPLOYMENT
    operator_lease: str = names.OPERATOR_LEASE
    agent_daemon_set: str = names.AGENT_DAEMON_SET
    webhook_deployment: str = names.WEBHOOK_DEPLOYMENT
    scheduler_deployment: str = names.SCHEDULER_DEPLOYMENT
    removed_objects: str = names.REMOVED_OBJECTS  # the ConfigMap with what managementState Removed deleted
    scheduler_lease: str = names.SCHEDULER_LEASE
    binder_deployment: str = names.BINDER_DEPLOYMENT
    binder_lease: str = names.BINDER_LEASE
    reservation_service_account: str = names.RESERVATION_SERVICE_ACCOUNT
    webhook_service: str = names.WEBHOOK_SERVICE
    webhook_secret: str = names.WEBHOOK_CERTIFICATE_SECRET
    fallback_service: str = names.FALLBACK_SERVICE
    fallback_secret: str = names.FALLBACK_CERTIFICATE_SECRET
    promises: str = names.FALLBACK_PROMISES
    slice_configuration: str = names.SLICE_WEBHOOK_CONFIGURATION
    guard_configuration: str = names.GUARD_WEBHOOK_CONFIGURATION
    fallback_configuration: str = names.FALLBACK_WEBHOOK_CONFIGURATION

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Installation:
        """The names in the environment of a process; empty and missing ones are the defaults."""
        return cls(**{field: environment[name] for name, field in _ENVIRONMENT.items() if environment.get(name)})

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All namespaces in which Apportion runs pods."""
        return (self.namespace, self.sharing_namespace, self.reservation_namespace, self.fallback_namespace)
