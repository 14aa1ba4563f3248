"""Who asks for what: the facts that authorization, admission and verbs share about one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pocketkube.api.registry import Resource

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"


@dataclass(frozen=True, slots=True)
class User:
    """An identity as authentication found it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The form of `userInfo` in admission reviews and of SelfSubjectReview."""
        info: dict[str, Any] = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        if self.extra:
            info["extra"] = {key: list(values) for key, values in sorted(self.extra.items())}
        return info


ADMIN = User("admin", (MASTERS, AUTHENTICATED))
ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """What authorization decides on: a verb on a resource, or a method on a plain path."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def is_resource(self) -> bool:
        return bool(self.plural)


@dataclass(slots=True)
class Attributes:
    """One write on its way through admission. `warnings` end as Warning headers of the answer.

    `name` is empty while a generated name is not made yet. `options` is the Create/Update/DeleteOptions
    object as the caller gave it.
    """

    operation: Operation
    resource: Resource
    subresource: str
    namespace: str
    name: str
    user: User
    dry_run: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    old: dict[str, Any] | None = None  # the object before an update, for mutating admission

    def warn(self, text: str) -> None:
        self.warnings.append(text)
