"""A bucket to practise with: a local object server in memory, with as much of S3 as labkit needs.

    python book/4-cloud/object_server.py 9000 course       until Ctrl-C: port 9000, with the bucket "course"
    export OBS_ENDPOINT=http://127.0.0.1:9000 OBS_ACCESS_KEY_ID=learner OBS_SECRET_ACCESS_KEY=practice

It checks signatures (version 4), stores nothing on disk, and can fail on purpose: see `fault`. It is made for one
learner; labkit's tests also use it, next to OpenStack Swift.
"""

import base64
import hashlib
import hmac
import re
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape


@dataclass
class Object:
    content: bytes
    etag: str
    metadata: dict


@dataclass
class Upload:
    """An object that arrives in parts; listings do not show it until it is completed."""

    key: str
    metadata: dict
    parts: dict = field(default_factory=dict)  # {number: content}


class Server(ThreadingHTTPServer):
    """buckets: {name: {key: Object}}; uploads: {id: Upload}; log: a line for each request and its answer."""

    daemon_threads, allow_reuse_address, request_queue_size = True, True, 64

    def __init__(self, *buckets, port=0, access="learner", secret="practice"):
        super().__init__(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.buckets, self.uploads, self.log = {name: {} for name in buckets}, {}, []
        self.access, self.secret, self.faults, self._lock = access, secret, [], threading.Lock()

    def start(self):
        """Start answering, in threads that end with this process."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def environment(self):
        """Environment variables that point labkit to this server."""
        return {"OBS_ENDPOINT": self.url, "OBS_ACCESS_KEY_ID": self.access, "OBS_SECRET_ACCESS_KEY": self.secret}

    def fault(self, name, pattern, times=1):
        """Make the next requests whose log line matches the pattern fail.

        name: "stall", no answer; "busy", 503; "flip", a wrong byte in the answer.
        """
        self.faults += [(name, pattern)] * times

    def faulty(self, line):
        with self._lock:
            for fault in self.faults:
                if re.search(fault[1], line):
                    self.faults.remove(fault)
                    return fault[0]

    def handle_error(self, *_):
        """Ignore clients that have disconnected."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise each answer's body waits 40 ms until the head is acknowledged

    def do_PUT(self):
        path, _, query = self.path.partition("?")
        self.query = dict(parse_qsl(query, keep_blank_values=True))
        self.bucket, _, self.key = unquote(path).lstrip("/").partition("/")
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.metadata = {name: value for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")}
        name = self.operation()
        line = f"{self.command} {name}"
        fault = self.server.faulty(line)
        if fault == "stall":
            self.server.log.append(f"{line}: no answer")
            time.sleep(300)
            self.close_connection = True
            return
        if fault == "busy":
            answer = self.error(503, "SlowDown", "Please reduce your request rate")
        elif wrong := self.refusal(path):
            answer = self.error(403, *wrong)
        elif self.command == "PUT" and self.bucket and not self.key:
            self.server.buckets.setdefault(self.bucket, {})
            answer = 200, {}, b""
        elif self.bucket not in self.server.buckets:
            answer = self.error(404, "NoSuchBucket", "The bucket does not exist")
        else:
            answer = self.perform(self.server.buckets[self.bucket])
        status, headers, content = answer
        if fault == "flip" and content:
            content = bytes([content[0] ^ 1]) + content[1:]
        self.server.log.append(f"{line}: {status}")
        self.send_response(status)
        length = headers.pop("Content-Length", len(content))
        for header, value in {**headers, "Content-Length": length, "x-amz-request-id": "practice"}.items():
            self.send_header(header, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT

    def log_message(self, *_):
        pass

    def operation(self):
        """The request in words, for the log."""
        query, key = self.query, self.key
        if "partNumber" in query:
            return f"part {query['partNumber']} of {key}"
        if "uploadId" in query:
            return {"GET": "parts of ", "POST": "completion of ", "DELETE": "upload of "}[self.command] + key
        if "uploads" in query:
            return f"new upload of {key}"
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        return (f"{key}, bytes {span[1]} to {span[2]}" if span else key) if key else f"list {query.get('prefix', '')}"

    # -- Executing requests ----------------------------------------------------------------------------

    def perform(self, bucket):
        key, query, uploads = self.key, self.query, self.server.uploads
        if not key:
            return self.list_objects(bucket)
        if "uploads" in query:
            upload_id = uuid.uuid4().hex
            uploads[upload_id] = Upload(key, self.metadata)
            names = f"<Bucket>{self.bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{upload_id}</UploadId>"
            return self.xml("InitiateMultipartUploadResult", names)
        if "uploadId" in query:
            upload = uploads.get(query["uploadId"])
            if upload is None:
                return self.error(404, "NoSuchUpload", "The upload does not exist")
            return self.of_upload(bucket, upload)
        if self.command == "PUT":
            if wrong := self.damaged():
                return wrong
            bucket[key] = Object(self.body, hashlib.md5(self.body).hexdigest(), self.metadata)
            return 200, {"ETag": f'"{bucket[key].etag}"'}, b""
        if self.command == "DELETE":
            bucket.pop(key, None)
            return 204, {}, b""
        if key not in bucket:
            return self.error(404, "NoSuchKey", "The object does not exist")
        return self.send_object(bucket[key])

    def send_object(self, item):
        if self.headers.get("If-Match", item.etag).strip('"') != item.etag:
            return self.error(412, "PreconditionFailed", "The object is not the version asked for")
        content = item.content
        headers = {"ETag": f'"{item.etag}"', "Last-Modified": "Sat, 21 Nov 2026 12:00:00 GMT"} | item.metadata
        if self.command == "HEAD":
            return 200, headers | {"Content-Length": len(content)}, b""
        if span := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, last = int(span[1]), min(int(span[2]), len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            return 206, headers, content[first : last + 1]
        return 200, headers, content

    def of_upload(self, bucket, upload):
        if self.command == "PUT":
            if wrong := self.damaged():
                return wrong
            upload.parts[int(self.query["partNumber"])] = self.body
            return 200, {"ETag": f'"{hashlib.md5(self.body).hexdigest()}"'}, b""
        if self.command == "GET":
            parts = "".join(
                f'<Part><PartNumber>{number}</PartNumber><ETag>"{hashlib.md5(content).hexdigest()}"</ETag>'
                f"<Size>{len(content)}</Size></Part>" for number, content in sorted(upload.parts.items())
            )  # fmt: skip
            head = f"<Bucket>{self.bucket}</Bucket><Key>{quote(upload.key)}</Key>"
            head += f"<UploadId>{self.query['uploadId']}</UploadId><IsTruncated>false</IsTruncated>"
            return self.xml("ListPartsResult", head + parts)
        if self.command == "POST":
            elements = ElementTree.fromstring(self.body).iter()
            numbers = [int(element.text) for element in elements if element.tag.endswith("PartNumber")]
            if not numbers or not set(numbers) <= set(upload.parts):
                return self.error(400, "InvalidPart", "A part is missing")
            parts = [upload.parts[number] for number in numbers]
            etag = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest() + f"-{len(parts)}"
            bucket[upload.key] = Object(b"".join(parts), etag, upload.metadata)
            del self.server.uploads[self.query["uploadId"]]
            result = f'<Bucket>{self.bucket}</Bucket><Key>{escape(upload.key)}</Key><ETag>"{etag}"</ETag>'
            return self.xml("CompleteMultipartUploadResult", result)
        del self.server.uploads[self.query["uploadId"]]
        return 204, {}, b""

    def list_objects(self, bucket):
        prefix, marker, most = self.query.get("prefix", ""), self.query.get("marker", ""), 1000
        keys = sorted(key for key in bucket if key.startswith(prefix) and key > marker)
        folders = []
        if self.query.get("delimiter"):  # one level, all in one page
            ends = {key: key.find("/", len(prefix)) + 1 for key in keys}
            folders = sorted({key[:end] for key, end in ends.items() if end})
            keys, most = [key for key in keys if not ends[key]], len(keys)
        listing = f"<Name>{self.bucket}</Name><Prefix>{escape(prefix)}</Prefix><MaxKeys>{most}</MaxKeys>"
        listing += "".join(f"<CommonPrefixes><Prefix>{quote(name)}</Prefix></CommonPrefixes>" for name in folders)
        listing += f"<IsTruncated>{str(len(keys) > most).lower()}</IsTruncated>"
        for key in keys[:most]:
            listing += f'<Contents><Key>{quote(key)}</Key><ETag>"{bucket[key].etag}"</ETag>'
            listing += f"<Size>{len(bucket[key].content)}</Size><LastModified>2026-11-21T12:00:00.000Z</LastModified>"
            listing += "<StorageClass>STANDARD</StorageClass></Contents>"
        return self.xml("ListBucketResult", listing + "<EncodingType>url</EncodingType>")

    # -- Shared by all requests ------------------------------------------------------------------------

    def refusal(self, path):
        """Why a request is not signed with the secret key, as (code, message), or None."""
        signed = self.headers.get("Authorization", "")
        given = dict(re.findall(r"(Credential|SignedHeaders|Signature)=([^,\s]+)", signed))
        if len(given) < 3:
            return "AccessDenied", "The request is not signed"
        access, *scope = given["Credential"].split("/")
        if access != self.server.access:
            return "InvalidAccessKeyId", "There is no such access key"
        names = given["SignedHeaders"].split(";")
        query = "&".join(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in sorted(self.query.items()))
        lines = [self.command, path, query, *(f"{name}:{(self.headers[name] or '').strip()}" for name in names), ""]
        lines += [given["SignedHeaders"], self.headers["x-amz-content-sha256"] or ""]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        date = f"{parsedate_to_datetime(self.headers['Date']):%Y%m%dT%H%M%SZ}"
        text = "\n".join(["AWS4-HMAC-SHA256", date, "/".join(scope), digest])
        key = f"AWS4{self.server.secret}".encode()
        for word in (*scope, text):
            key = hmac.digest(key, word.encode(), hashlib.sha256)
        if not hmac.compare_digest(key.hex(), given["Signature"]):
            return "SignatureDoesNotMatch", "The signature was not made with the secret key of this access key"

    def damaged(self):
        md5 = self.headers.get("Content-MD5")
        if md5 and base64.b64decode(md5) != hashlib.md5(self.body).digest():
            return self.error(400, "BadDigest", "The content is not what was sent")

    def error(self, status, code, message):
        document = f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>practice</RequestId></Error>"
        return status, {"Content-Type": "application/xml"}, document.encode()

    def xml(self, name, inside):
        return 200, {"Content-Type": "application/xml"}, f"<{name}>{inside}</{name}>".encode()


if __name__ == "__main__":
    port = int(sys.argv[1]) if sys.argv[1:] else 9000
    try:
        server = Server(*(sys.argv[2:] or ["course"]), port=port)
    except OSError as error:
        sys.exit(f"port {port}: {error.strerror}; choose another port")
    print("export", *(f"{name}={value}" for name, value in server.environment().items()), flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(130)
