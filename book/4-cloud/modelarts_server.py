"""A stand-in for ModelArts on this machine, as far as labkit asks it: checks signatures, keeps jobs, can fail."""

import hashlib
import hmac
import json
import socket
import threading
import time
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote

ACCESS, SECRET, TOKEN = "ACCESSKEYFORPRACTICE", "Secret-key/for+practice=", "token-for-practice"
KEYS = {"OBS_ACCESS_KEY_ID": ACCESS, "OBS_SECRET_ACCESS_KEY": SECRET}
PROJECT = "0123456789abcdef"
ENGINES = [{"engine_id": "m-2.3", "engine_name": "Ascend-Powered-Engine", "engine_version": "mindspore_2.3.0"}]
FLAVORS = [
    {"flavor_id": "modelarts.npu.1", "flavor_type": "Ascend"},
    {"flavor_id": "modelarts.cpu.8", "flavor_type": "CPU"},
]


class Stub:
    """What the server knows: jobs by id, in the order of their creation, and all that it was asked.

    faults: {operation: [fault, ...]}, one for each request that follows. "drop": nothing done, no answer;
    (status, body): nothing done; the others are done first. "lose": no answer; "stall": none, and the line stays open;
    "html", "empty": another answer than expected; "gateway": 502. hidden: searches that do not show any job yet.
    """

    def __init__(self):
        self.jobs, self.asked, self.faults, self.hidden, self.log = {}, [], {}, 0, "step 1\n"

    def operations(self):
        return [operation for operation, _ in self.asked]


def refusal(method, path, headers, body):
    """Why the signature is no good, or None. Written from the gateway's guide, not from labkit.modelarts.signing."""
    kind, _, rest = headers.get("Authorization", "").partition(" ")
    given = dict(word.strip().split("=", 1) for word in rest.split(",") if "=" in word)
    if kind != "SDK-HMAC-SHA256" or given.get("Access") != ACCESS:
        return "no such access key"
    date = headers.get("X-Sdk-Date", "")
    age = datetime.now(timezone.utc) - datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    if abs(age) > timedelta(minutes=15):
        return "too old"
    names = given["SignedHeaders"].split(";")
    if not {"host", "x-sdk-date"} <= set(names) or names != sorted(names):
        return "host and date must be signed"
    path, _, query = path.partition("?")
    text = method + "\n"
    for part in path.strip("/").split("/"):
        text += "/" + quote(unquote(part), safe="-_.~")
    text += "/\n" + "&".join(
        quote(name, safe="-_.~") + "=" + quote(value, safe="-_.~") for name, value in sorted(parse_qsl(query))
    )
    text += "\n" + "".join(f"{name}:{headers[name].strip()}\n" for name in names)
    text += "\n" + ";".join(names) + "\n" + hashlib.sha256(body).hexdigest()
    text = f"SDK-HMAC-SHA256\n{date}\n{hashlib.sha256(text.encode()).hexdigest()}"
    right = hmac.new(SECRET.encode(), text.encode(), hashlib.sha256).hexdigest()
    return None if hmac.compare_digest(right, given["Signature"]) else "signature is wrong"


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
            asked = json.loads(body) if body else dict(parse_qsl(query))
            stub.asked.append((operation, asked))
            waiting = stub.faults.get(operation)
            fault = waiting.pop(0) if waiting else None
            if fault == "drop":
                return self.hang_up()
            if isinstance(fault, tuple):
                return self.answer(*fault)
            answer = self.perform(operation, parts, asked)
            if fault == "lose":
                return self.hang_up()
            if fault == "stall":
                return time.sleep(1.5)
            if fault == "gateway":
                return self.answer(502, "<html>Bad gateway</html>")
            if fault in ("html", "empty"):
                return self.answer(200, "<html>Welcome to the network</html>" if fault == "html" else {})
            return self.answer(*answer)

        do_POST = do_GET

        def perform(self, operation, parts, asked):
            match operation:
                case "POST training-jobs":
                    number = f"job-{len(stub.jobs) + 1}"
                    metadata = {**asked["metadata"], "id": number, "create_time": 1700000000000 + len(stub.jobs)}
                    status = {"phase": "Creating", "duration": 0, "tasks": ["worker-0"]}
                    stub.jobs[number] = {**asked, "metadata": metadata, "status": status}
                    return 201, stub.jobs[number]
                case "POST training-job-searches":
                    stub.hidden, hide = max(stub.hidden - 1, 0), stub.hidden > 0
                    named = [value for one in asked.get("filters", []) for value in one["value"]]
                    found = [] if hide else list(stub.jobs.values())[::-1]
                    found = [job for job in found if all(part in job["metadata"]["name"] for part in named)]
                    page = found[asked["offset"] :][: asked["limit"]]
                    return 200, {"total": len(found), "count": len(page), "items": page}
                case "GET training-job-flavors":
                    kind = asked.get("flavor_type")
                    return 200, {"flavors": [one for one in FLAVORS if kind in (None, one["flavor_type"])]}
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
    """A server on a free port of this machine: the Stub, with .url. wrap: makes a TLS socket of its socket."""
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
