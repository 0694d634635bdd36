"""A web server on loopback that behaves badly in chosen ways."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site:
    """A web server with one page a behaviour. `requests` lists (path, Range, If-Range, sent)."""

    def __init__(self, content: bytes):
        self.content, self.pages, self.requests = content, {}, []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.answer(self)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def page(self, path, content=None, **behaviour):
        """Serve `content`. Behaviour: etag, drop=[bytes sent of each answer, then cut],
        rate (bytes a second), status, claim (Content-Length)."""
        content = self.content if content is None else content
        self.pages[path] = {"content": content, "etag": '"v1"', **behaviour}
        return f"http://127.0.0.1:{self.server.server_port}{path}"

    def answer(self, request):
        page = self.pages.get(request.path)
        wanted, condition = request.headers.get("Range"), request.headers.get("If-Range")
        log = [request.path, wanted, condition, 0]
        self.requests.append(log)
        if page is None or "status" in page:
            request.send_error(page["status"] if page else 404)
            return
        content, start = page["content"], 0
        if wanted and condition in (None, page["etag"]):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        request.send_response(206 if start else 200)
        if start:
            last = len(content) - 1
            request.send_header("Content-Range", f"bytes {start}-{last}/{len(content)}")
        request.send_header("ETag", page["etag"])
        request.send_header("Content-Type", "application/x-gzip")
        request.send_header("Content-Length", str(page.get("claim", len(content) - start)))
        request.end_headers()
        end = len(content)
        if page.get("drop"):
            end = min(end, start + page["drop"].pop(0))
        step = 16384
        try:
            for at in range(start, end, step):
                piece = content[at : min(at + step, end)]
                request.wfile.write(piece)
                log[3] += len(piece)
                if "rate" in page:
                    time.sleep(len(piece) / page["rate"])
        except OSError:
            pass  # the client went away, which some tests want
