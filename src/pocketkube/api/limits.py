"""What one client, one request and one object may cost, in one place.

Where kube-apiserver or etcd has a limit, it is theirs. The others keep the cost of a request linear and small enough
for a process that also runs the controllers and kubelets; `docs/security.md` states them for users.
"""

from __future__ import annotations

# Requests
MAX_BODY = 3 * 1024 * 1024  # bytes; kube-apiserver
MAX_DEPTH = 200  # levels of JSON or YAML; walks of objects are recursive
MAX_VALUES = 300_000  # objects, lists and scalars of a request: about 100 bytes of memory each
MAX_PATCH_OPERATIONS = 10_000  # of one JSON patch; kube-apiserver
MAX_COPIED_BYTES = MAX_BODY  # that the `copy` operations of one JSON patch add; kube-apiserver
MAX_LINE = 64 * 1024  # bytes of a URL or of one header
BODY_SECONDS = 30.0  # until the whole body must be there
IDLE_SECONDS = 75.0  # that a connection may have no request, or an unfinished header
MAX_CONNECTIONS = 4_096
MAX_WAITING = 400  # requests of all clients that are being answered, watches and logs aside; kube-apiserver

# Objects
MAX_OBJECT = 1536 * 1024  # bytes of a custom object; etcd
MAX_BUILTIN_OBJECT = 1984 * 1024  # bytes of JSON; etcd counts protobuf, which is shorter
MAX_STORE = 256 * 1024 * 1024  # bytes of all objects; etcd's quota is 2 GiB
MAX_NAMESPACE = 64 * 1024 * 1024  # bytes of the objects of one namespace, so that none fills the store alone

# Answers
MAX_CAUSES = 1_000  # problems of one object that are reported
MAX_CAUSES_TEXT = 1024 * 1024  # characters of them
MAX_STRICT_ERRORS = 100  # unknown and duplicate fields that are reported; kube-apiserver

# Watches
MAX_HISTORY_BYTES = 8 * 1024 * 1024  # of old versions of all kinds; what is older is Expired
MAX_BACKLOG_BYTES = 16 * 1024 * 1024  # of events that a watching client has not read

# Work that other clients should not wait for is done in a thread
LARGE = 64 * 1024  # bytes of an object or answer
MAX_LARGE = 2  # large requests that are answered at once: each can hold 100 MiB of objects
MAX_LARGE_WAITING = 16  # large requests that are answered or wait for that
