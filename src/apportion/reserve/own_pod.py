"""Writes the UUID of the GPU on the pod of this process.

Token and certificate authority are read for every attempt: both are renewed while the pod runs.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from urllib.parse import quote

from apportion.apis import names
from apportion.cluster import service_account
from apportion.reserve.errors import Misconfigured, Unreachable

SECONDS = 10.0  # for one attempt
_FIELD_MANAGER = "apportion-reserve"
_LONGEST_ANSWER = 1 << 20
_LONGEST_MESSAGE = 400
_TRANSIENT = (401, 408, 409, 429)  # 401: the token was renewed a moment ago


def write(gpu: str, environment: Mapping[str, str]) -> None:
    """One attempt; raises Unreachable or Misconfigured."""
    pod, namespace = _named(environment, "POD_NAME"), _named(environment, "POD_NAMESPACE")
    path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}?fieldManager={_FIELD_MANAGER}"
    body = json.dumps({"metadata": {"annotations": {names.RESERVED_GPU: gpu}}})
    status, answer = _send(environment, path, body)
    if status == http.client.OK:
        return
    told = f"the API server answered {status}: {_message(answer)}"
    if status >= http.client.INTERNAL_SERVER_ERROR or status in _TRANSIENT:
        raise Unreachable(told)
    if status == http.client.FORBIDDEN:
        told += ": the service account of this pod needs the right to patch pods in this namespace"
    raise Misconfigured(f"pod {namespace}/{pod} cannot be annotated: {told}")


def _send(environment: Mapping[str, str], path: str, body: str) -> tuple[int, bytes]:
    host = _named(environment, "KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
    folder = environment.get(service_account.DIRECTORY_ENV) or service_account.DIRECTORY
    try:
        with open(f"{folder}/token", encoding="ascii") as file:  # noqa: PTH123  pathlib would be loaded for it alone
            token = file.read().strip()
        tls = ssl.create_default_context(cafile=f"{folder}/ca.crt")
    except (OSError, ValueError) as error:
        raise Misconfigured(
            f"the service account of this pod cannot be read in {folder}: {error}: "
            "its token must be mounted (automountServiceAccountToken)"
        ) from None
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
    connection = http.client.HTTPSConnection(host, int(port), timeout=SECONDS, context=tls)
    try:
        connection.request("PATCH", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(_LONGEST_ANSWER)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(
            f"the API server at {host}:{port} cannot be reached: {error or type(error).__name__}"
        ) from None
    finally:
        connection.close()


def _named(environment: Mapping[str, str], variable: str) -> str:
    value = environment.get(variable)
    if not value:
        raise Misconfigured(f"the variable {variable} is not set: run this command in a reservation pod")
    return value


def _message(answer: bytes) -> str:
    """What the server says, on one line."""
    try:
        text = str(json.loads(answer)["message"])
    except (ValueError, TypeError, KeyError):
        text = answer.decode(errors="replace")
    return " ".join(text.split())[:_LONGEST_MESSAGE]
