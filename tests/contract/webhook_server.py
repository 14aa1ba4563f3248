"""A webhook for the contract tests, run as a process of its own (inside a cluster's network where it has one).

    python webhook_server.py CERTIFICATE KEY

prints its port and then answers by path: /annotate/NAME, /count, /deny, /warn, /slow, /nonsense, /badpatch, /record.
"""

from __future__ import annotations

import base64
import json
import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JSON = dict[str, Any]
seen: list[JSON] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        if path == "/nonsense":
            self._send(b"this is no review")
            return
        response: JSON = {"uid": review["request"]["uid"], "allowed": True}
        answer(path, review["request"], response)
        body = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
        self._send(json.dumps(body).encode())

    def do_GET(self) -> None:
        self._send(json.dumps(seen).encode())

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def answer(path: str, request: JSON, response: JSON) -> None:
    metadata = (request.get("object") or {}).get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    match path.strip("/").split("/"):
        case ["annotate", name]:
            trail = annotations.get("trail", "")
            patch(response, "/metadata/annotations", annotations | {"trail": f"{trail}{name}"})
        case ["deny"]:
            response |= {"allowed": False, "status": {"message": "not today", "code": 418, "reason": "Teapot"}}
        case ["deny-plainly"]:
            response["allowed"] = False
        case ["warn"]:
            response["warnings"] = ["mind the gap"]
        case ["slow"]:
            time.sleep(5)
        case ["badpatch"]:
            operations = [{"op": "remove", "path": "/metadata/nowhere/at/all"}]
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}
        case ["wronguid"]:
            response["uid"] = "somebody else"
        case ["tell"]:
            old = request.get("oldObject")
            facts = {
                "operation": request["operation"],
                "resource": request["resource"]["resource"],
                "kind": request["kind"]["kind"],
                "sub": request.get("subResource", ""),
                "name": request.get("name", ""),
                "namespace": request.get("namespace", ""),
                "user": request["userInfo"]["username"],
                "dryRun": request["dryRun"],
                "object": request.get("object") is not None,
                "old": old is not None,
                "options": request["options"]["kind"],
            }
            response["warnings"] = [json.dumps(facts, sort_keys=True)]


def patch(response: JSON, path: str, value: Any) -> None:
    operations = [{"op": "add", "path": path, "value": value}]
    response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
