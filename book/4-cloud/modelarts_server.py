"""A local stand-in for ModelArts, with all that labkit needs: checks signatures, keeps jobs, can fail on purpose."""

import json
import re
import socket
import threading
import time
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote

from labkit.modelarts.signing import sign

ACCESS, SECRET, TOKEN = "ACCESSKEYFORPRACTICE", "Secret-key/for+practice=", "token-for-practice"
KEYS = {"OBS_ACCESS_KEY_ID": ACCESS, "OBS_SECRET_ACCESS_KEY": SECRET}
PROJECT = "0123456789abcdef"
ENGINES = [{"engine_id": "m-2.3", "engine_name": "Ascend-Powered-Engine", "engine_version": "mindspore_2.3.0"}]
FLAVORS = [
    {"flavor_id": "modelarts.npu.1", "flavor_type": "Ascend"},
    {"flavor_id": "modelarts.cpu.8", "flavor_type": "CPU"},
]
INSTEAD = {"html": (200, "<html>Welcome to the network</html>"), "empty": (200, {}), "gateway": (502, "<html>")}


class Stub:
    """The server's state: jobs by id, in the order of their creation, and all requests so far.

    faults: {operation: [fault, ...]}, one for each following request. "drop": do nothing and give no answer;
    (status, body): do nothing and give this answer. Others execute the request first. "lose": give no answer; "stall":
    give no answer and keep the connection open; a key of INSTEAD: give that answer.
    hidden: number of following searches that show no jobs yet.
    """

    def __init__(self):
        self.jobs, self.requests, self.faults, self.hidden, self.log = {}, [], {}, 0, "step 1\n"

    def operations(self):
        return [operation for operation, _ in self.requests]


def refusal(method, address, headers, body):
    """Why a request is not signed as by labkit, whose tests compare its signatures with the vendor's; or None."""
    given = dict(re.findall(r"(Access|SignedHeaders)=([^,]+)", headers.get("Authorization", "")))
    if given.get("Access") != ACCESS:
        return "no such access key"
    date = datetime.strptime(headers["X-Sdk-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    names = set(given["SignedHeaders"].split(";")) - {"host", "x-sdk-date"}
    signed = {name: headers[name] for name in names}
    correct = sign(method, f"//{headers['Host']}{address}", signed, body, (ACCESS, SECRET), date)
    return None if correct["Authorization"] == headers["Authorization"] else "signature is wrong"


def _handler(stub):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if wrong := refusal(self.command, self.path, self.headers, body):
                echo = f"verify aksk signature fail: {wrong}; got {self.headers['Authorization']} {TOKEN}\n{SECRET}"
                return self.answer(401, {"error_code": "APIG.0301", "error_msg": echo})
            path, _, query = self.path.partition("?")
            if not path.startswith(f"/v2/{PROJECT}/"):
                return self.answer(404, {"error_code": "ModelArts.0", "error_msg": "no such project"})
            parts = path.removeprefix(f"/v2/{PROJECT}/").split("/")
            operation = f"{self.command} {parts[0]}{'/' + parts[-1] if len(parts) > 2 else '/ID' * (len(parts) - 1)}"
            arguments = json.loads(body) if body else dict(parse_qsl(query))
            stub.requests.append((operation, arguments))
            waiting = stub.faults.get(operation)
            fault = waiting.pop(0) if waiting else None
            if fault == "drop":
                return self.hang_up()
            if isinstance(fault, tuple):
                return self.answer(*fault)
            answer = self.perform(operation, parts, arguments)
            if fault == "lose":
                return self.hang_up()
            if fault == "stall":
                return time.sleep(1.5)
            return self.answer(*INSTEAD.get(fault, answer))

        do_POST = do_GET

        def perform(self, operation, parts, arguments):
            match operation:
                case "POST training-jobs":
                    number = f"job-{len(stub.jobs) + 1}"
                    metadata = {**arguments["metadata"], "id": number, "create_time": 1700000000000 + len(stub.jobs)}
                    status = {"phase": "Creating", "duration": 0, "tasks": ["worker-0"]}
                    stub.jobs[number] = {**arguments, "metadata": metadata, "status": status}
                    return 201, stub.jobs[number]
                case "POST training-job-searches":
                    stub.hidden, hide = max(stub.hidden - 1, 0), stub.hidden > 0
                    names = [value for condition in arguments.get("filters", []) for value in condition["value"]]
                    jobs = [] if hide else list(stub.jobs.values())[::-1]
                    jobs = [job for job in jobs if all(name in job["metadata"]["name"] for name in names)]
                    page = jobs[arguments["offset"] :][: arguments["limit"]]
                    return 200, {"total": len(jobs), "count": len(page), "items": page}
                case "GET training-job-flavors":
                    device = arguments.get("flavor_type")
                    return 200, {"flavors": [flavor for flavor in FLAVORS if device in (None, flavor["flavor_type"])]}
                case "GET training-job-engines":
                    return 200, {"total": len(ENGINES), "items": ENGINES}
            job = stub.jobs.get(unquote(parts[1]))
            if job is None:
                return 404, {"error_code": "ModelArts.2754", "error_msg": "the job does not exist"}
            if operation == "GET training-jobs/preview":
                return 200, {"content": stub.log, "current_size": len(stub.log), "full_size": len(stub.log)}
            if operation == "POST training-jobs/actions":
                if job["status"]["phase"] in ("Completed", "Failed", "Terminated", "Terminating"):
                    return 400, {"error_code": "ModelArts.2763", "error_msg": "the job cannot be terminated"}
                job["status"]["phase"] = "Terminating"
                return 202, job
            return 200, job

        def answer(self, status, body):
            content = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("X-Request-Id", "request-7")
            self.send_header("Content-Length", str(len(content)))
            if status in (302, 307):
                self.send_header("Location", self.path)
            self.end_headers()
            self.wfile.write(content)

        def hang_up(self):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    return Handler


@contextmanager
def serve(wrap=None):
    """Run a server on a free local port; yields its Stub, with .url. wrap: turns the server's socket into a TLS one."""
    stub = Stub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(stub))
    if wrap:
        server.socket = wrap(server.socket)
    stub.url = f"{'https' if wrap else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
