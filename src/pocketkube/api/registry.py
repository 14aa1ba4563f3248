"""Which kinds this API server serves, and under which names.

Built-in kinds stand in one table below; custom kinds are added while the server runs. A `Resource`
knows nothing about storage or HTTP: everybody who must look up "what is /apis/apps/v1/deployments"
asks the registry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

READ_WRITE = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclasses.dataclass(frozen=True)
class PrinterColumn:
    """One column of a custom kind's table."""

    name: str
    type: str
    json_path: str
    description: str = ""
    format: str = ""
    priority: int = 0


@dataclasses.dataclass(frozen=True)
class ScalePaths:
    """Where a custom kind keeps what its Scale subresource shows (dotted paths, as the CRD writes them)."""

    spec_replicas: str
    status_replicas: str
    label_selector: str | None = None


@dataclasses.dataclass(frozen=True)
class Resource:
    """One served resource: a kind in one version, with its names, its subresources and its schema."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = READ_WRITE
    # Name of the struct in lightkube-models ("core_v1.Pod"); None for custom kinds.
    model: str | None = None
    # Structural schema of a custom kind (openAPIV3Schema); None for built-in kinds.
    schema: Mapping[str, Any] | None = None
    printer_columns: tuple[PrinterColumn, ...] = ()
    list_kind: str = ""
    # Group and plural under which objects are stored: two API groups can show the same objects (events).
    storage: tuple[str, str] = ("", "")
    scale: ScalePaths | None = None
    selectable_fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.list_kind:
            object.__setattr__(self, "list_kind", f"{self.kind}List")
        if not self.storage[1]:
            object.__setattr__(self, "storage", (self.group, self.plural))

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def custom(self) -> bool:
        return self.model is None

    @property
    def qualified(self) -> str:
        """The name that error messages use: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Registry:
    """All served resources; the versions of a group are kept in order of preference."""

    def __init__(self, resources: Iterator[Resource] | list[Resource] | None = None) -> None:
        self._by_plural: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str, str], Resource] = {}
        self.generation = 0  # grows with every change, so that discovery and OpenAPI know when to rebuild
        for resource in resources or ():
            self.add(resource)

    @classmethod
    def builtin(cls) -> Registry:
        return cls(_builtin())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_plural.get((group, version, plural))

    def by_api_version(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        return self._by_kind.get((group, version, kind))

    def add(self, resource: Resource) -> None:
        """Serve a resource; one that is served under the same names already is replaced."""
        self._by_plural[resource.group, resource.version, resource.plural] = resource
        self._by_kind[resource.group, resource.version, resource.kind] = resource
        self.generation += 1

    def remove(self, resource: Resource) -> None:
        self._by_plural.pop((resource.group, resource.version, resource.plural), None)
        self._by_kind.pop((resource.group, resource.version, resource.kind), None)
        self.generation += 1

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_plural.values()))

    def __len__(self) -> int:
        return len(self._by_plural)

    def groups(self) -> dict[str, list[str]]:
        """Group name to its versions, preferred version first; built-in groups in the order of the table."""
        found: dict[str, list[str]] = {}
        for resource in self._by_plural.values():
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        for versions in found.values():
            versions.sort(key=_version_rank)
        return found

    def in_version(self, group: str, version: str) -> list[Resource]:
        """The resources of one group version by name, as discovery lists them."""
        return sorted(
            (each for each in self._by_plural.values() if (each.group, each.version) == (group, version)),
            key=lambda each: each.plural,
        )


def model_name(api_version: str, kind: str) -> str:
    """The name that a built-in type would have among the models: `apps/v1` Deployment is `apps_v1.Deployment`."""
    group, _, version = api_version.rpartition("/")
    short = next((short for short, full in _GROUPS_WITH_SUFFIX.items() if full == group), group)
    return f"{short}_{version}.{kind}"


def _version_rank(version: str) -> tuple[int, int, int, str]:
    """Kubernetes' order of versions: v2, v1, v2beta1, v1beta2, v1alpha1, then anything else by name."""
    body = version[1:] if version.startswith("v") else ""
    for stage, marker in enumerate(("", "beta", "alpha")):
        major, found, minor = body.partition(marker) if marker else (body, "", "0")
        if major.isdigit() and minor.isdigit() and (found or not marker):
            return (stage, -int(major), -int(minor), "")
    return (3, 0, 0, version)


_GROUPS_WITH_SUFFIX = {
    "admissionregistration": "admissionregistration.k8s.io",
    "apiextensions": "apiextensions.k8s.io",
    "authentication": "authentication.k8s.io",
    "authorization": "authorization.k8s.io",
    "certificates": "certificates.k8s.io",
    "coordination": "coordination.k8s.io",
    "core": "",
    "discovery": "discovery.k8s.io",
    "events": "events.k8s.io",
    "networking": "networking.k8s.io",
    "node": "node.k8s.io",
    "rbac": "rbac.authorization.k8s.io",
    "resource": "resource.k8s.io",
    "scheduling": "scheduling.k8s.io",
    "storage": "storage.k8s.io",
}

# model | plural | scope (N namespaced, C cluster) | short names | subresources | categories | verbs
# Verbs are left out where a kind has all eight; "create" is a review that is answered and not stored.
# Kinds that this server could store but not honour (API services, priority levels)
# are left out on purpose: they would be stored without any effect.
_TABLE = """
core_v1.Binding                 | bindings               | N |        |                  |     | create
core_v1.ComponentStatus         | componentstatuses      | C | cs     |                  |     | get list
core_v1.ConfigMap               | configmaps             | N | cm     |                  |     |
core_v1.Endpoints               | endpoints              | N | ep     |                  |     |
core_v1.Event                   | events                 | N | ev     |                  |     |
core_v1.LimitRange              | limitranges            | N | limits |                  |     |
core_v1.Namespace               | namespaces             | C | ns     | finalize status  |     | create delete get list patch update watch
core_v1.Node                    | nodes                  | C | no     | proxy status     |     |
core_v1.PersistentVolumeClaim   | persistentvolumeclaims | N | pvc    | status           |     |
core_v1.PersistentVolume        | persistentvolumes      | C | pv     | status           |     |
core_v1.Pod                     | pods                   | N | po     | attach binding ephemeralcontainers eviction exec log portforward proxy resize status | all |
core_v1.PodTemplate             | podtemplates           | N |        |                  |     |
core_v1.ReplicationController   | replicationcontrollers | N | rc     | scale status     | all |
core_v1.ResourceQuota           | resourcequotas         | N | quota  | status           |     |
core_v1.Secret                  | secrets                | N |        |                  |     |
core_v1.ServiceAccount          | serviceaccounts        | N | sa     | token            |     |
core_v1.Service                 | services               | N | svc    | proxy status     | all | create delete deletecollection get list patch update watch
apps_v1.ControllerRevision      | controllerrevisions    | N |        |                  |     |
apps_v1.DaemonSet               | daemonsets             | N | ds     | status           | all |
apps_v1.Deployment              | deployments            | N | deploy | scale status     | all |
apps_v1.ReplicaSet              | replicasets            | N | rs     | scale status     | all |
apps_v1.StatefulSet             | statefulsets           | N | sts    | scale status     | all |
events_v1.Event                 | events                 | N | ev     |                  |     |
authentication_v1.SelfSubjectReview         | selfsubjectreviews        | C | | | | create
authentication_v1.TokenReview               | tokenreviews              | C | | | | create
authorization_v1.LocalSubjectAccessReview   | localsubjectaccessreviews | N | | | | create
authorization_v1.SelfSubjectAccessReview    | selfsubjectaccessreviews  | C | | | | create
authorization_v1.SelfSubjectRulesReview     | selfsubjectrulesreviews   | C | | | | create
authorization_v1.SubjectAccessReview        | subjectaccessreviews      | C | | | | create
autoscaling_v2.HorizontalPodAutoscaler      | horizontalpodautoscalers  | N | hpa | status | all |
batch_v1.CronJob                | cronjobs               | N | cj     | status           | all |
batch_v1.Job                    | jobs                   | N |        | status           | all |
certificates_v1.CertificateSigningRequest   | certificatesigningrequests | C | csr | approval status | |
networking_v1.IngressClass      | ingressclasses         | C |        |                  |     |
networking_v1.Ingress           | ingresses              | N | ing    | status           |     |
networking_v1.NetworkPolicy     | networkpolicies        | N | netpol |                  |     |
policy_v1.PodDisruptionBudget   | poddisruptionbudgets   | N | pdb    | status           |     |
rbac_v1.ClusterRoleBinding      | clusterrolebindings    | C |        |                  |     |
rbac_v1.ClusterRole             | clusterroles           | C |        |                  |     |
rbac_v1.RoleBinding             | rolebindings           | N |        |                  |     |
rbac_v1.Role                    | roles                  | N |        |                  |     |
storage_v1.CSIDriver            | csidrivers             | C |        |                  |     |
storage_v1.CSINode              | csinodes               | C |        |                  |     |
storage_v1.CSIStorageCapacity   | csistoragecapacities   | N |        |                  |     |
storage_v1.StorageClass         | storageclasses         | C | sc     |                  |     |
storage_v1.VolumeAttachment     | volumeattachments      | C |        | status           |     |
storage_v1.VolumeAttributesClass | volumeattributesclasses | C | vac   |                  |     |
admissionregistration_v1.MutatingWebhookConfiguration   | mutatingwebhookconfigurations   | C | | | api-extensions |
admissionregistration_v1.ValidatingWebhookConfiguration | validatingwebhookconfigurations | C | | | api-extensions |
admissionregistration_v1.ValidatingAdmissionPolicy        | validatingadmissionpolicies       | C | | status | api-extensions |
admissionregistration_v1.ValidatingAdmissionPolicyBinding | validatingadmissionpolicybindings | C | | | api-extensions |
apiextensions_v1.CustomResourceDefinition               | customresourcedefinitions | C | crd crds | status | api-extensions |
scheduling_v1.PriorityClass     | priorityclasses        | C | pc     |                  |     |
coordination_v1.Lease           | leases                 | N |        |                  |     |
node_v1.RuntimeClass            | runtimeclasses         | C |        |                  |     |
discovery_v1.EndpointSlice      | endpointslices         | N |        |                  |     |
resource_v1.DeviceClass         | deviceclasses          | C |        |                  |     |
resource_v1.ResourceClaim       | resourceclaims         | N |        | status           |     |
resource_v1.ResourceClaimTemplate | resourceclaimtemplates | N |      |                  |     |
resource_v1.ResourceSlice       | resourceslices         | C |        |                  |     |
"""  # noqa: E501  a table reads best unbroken


def _builtin() -> Iterator[Resource]:
    for line in _TABLE.strip().splitlines():
        model, plural, scope, short_names, subresources, categories, verbs = (cell.strip() for cell in line.split("|"))
        module, kind = model.split(".")
        short_group, version = module.rsplit("_", 1)
        group = _GROUPS_WITH_SUFFIX.get(short_group, short_group)
        yield Resource(
            group=group,
            version=version,
            kind=kind,
            plural=plural,
            singular=kind.lower(),
            namespaced=scope == "N",
            short_names=tuple(short_names.split()),
            categories=tuple(categories.split()),
            subresources=frozenset(subresources.split()),
            verbs=tuple(verbs.split()) or READ_WRITE,
            model=model,
            storage=("", "events") if plural == "events" else (group, plural),
        )
