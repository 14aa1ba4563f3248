"""An HTTP filter extender that writes down which nodes passed kube-scheduler's own filters, and then takes none.

kube-scheduler asks it after all filters of its own. As it always answers "no node", the pod stays unscheduled and
the world stays as it is for the next pod. Runs alone, inside the sandbox;
arguments are a port and the file to append to.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    record = Path(sys.argv[2]) if len(sys.argv) > 2 else Path()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = sorted(asked["NodeNames"] or ())
        with self.record.open("a") as record:
            record.write(json.dumps({"uid": asked["Pod"]["metadata"]["uid"], "nodes": names}) + "\n")
        answer = json.dumps({"NodeNames": [], "FailedNodes": dict.fromkeys(names, "recorded"), "Error": ""}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Silent: the record is the log."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Recorder).serve_forever()
