"""ModelArts, API v2: training jobs (Job), and the server that has them (Client)."""

import json
import os
import random
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from labkit.modelarts.job import JobSpec
from labkit.modelarts.signing import sign
from labkit.obs import access
from labkit.obs.place import CloudError
from labkit.obs.retrying import Tries

PHASES = ("Creating", "Pending", "Running", "Completed", "Failed", "Terminating", "Terminated", "Abnormal")
ENDED = ("Completed", "Failed", "Terminated", "Abnormal")
PAGE = 50  # the most jobs that a search returns


@dataclass(frozen=True)
class Job:
    """A job. phase: one of PHASES, or one that the server has added since; times in milliseconds."""

    id: str
    name: str
    phase: str
    created: int = 0
    duration: int = 0
    tasks: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """True in a phase that no other follows."""
        return self.phase in ENDED

    @classmethod
    def parse(cls, answer):
        """The job in an answer; LookupError, TypeError or ValueError where there is none."""
        metadata, status = answer["metadata"], answer.get("status") or {}
        times = int(metadata.get("create_time") or 0), int(status.get("duration") or 0)
        if not all(0 <= time < 1 << 47 for time in times):  # beyond what a calendar has
            raise ValueError
        tasks = tuple(map(str, status.get("tasks") or ()))
        return cls(str(metadata["id"]), str(metadata["name"]), str(status.get("phase") or "unknown"), *times, tasks)


class Unanswered(CloudError):
    """No answer, or none that says whether it was done: a timeout, a reset, 5xx, something else than expected."""


class Busy(CloudError):
    """Not done, and worth retrying (429)."""


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None  # the signature is for one URL; the redirect comes out as an error


class Client:
    """ModelArts of one region and project. deadline: seconds after which a request that may be repeated is given up.

    settle: seconds in which a job whose creation was not answered may still appear. notice: called with a line when
    an answer takes longer than usual.
    """

    def __init__(self, endpoint, project, keys, *, context=None, deadline=120.0, timeout=30.0, settle=30.0,
                 notice=lambda line: None):  # fmt: skip
        self.endpoint, self.project, self._keys = endpoint.rstrip("/"), project, keys
        self.deadline, self.timeout, self.settle, self.notice = deadline, timeout, settle, notice
        context = context or ssl.create_default_context()  # verifies the chain and the host's name
        self._opener = build_opener(_NoRedirects, HTTPSHandler(context=context))

    @classmethod
    def connect(cls, environment=os.environ, **options):
        """The region, project and account that the environment or the SDKs' file names; raises CloudError."""
        context, keys = access.tls(environment, "MODELARTS_CA_FILE"), access.credentials(environment)
        return cls(access.modelarts_url(environment), access.project(environment), keys, context=context, **options)

    def create(self, spec: JobSpec) -> Job:
        """Start a job, once: where the answer is lost, the job is looked for by its name and never requested again.

        CloudError where the name is taken, the job is refused, or nobody can say whether it was created.
        """
        if taken := self.find(spec.name):
            raise CloudError(f"{spec.name}: there is a job of this name already ({taken[0].id}, {taken[0].phase})")
        try:
            return self._once("POST", "training-jobs", spec.body(), Job.parse)
        except Unanswered as error:
            lost = error
        self.notice(f"{spec.name}: its creation was not answered; looking for it, {self.settle:g} s at most")
        unknown = f"{spec.name}: no answer says whether this job was created [{lost}]; it was not requested again"
        end = time.monotonic() + self.settle
        while True:
            try:
                found = self.find(spec.name)
            except CloudError as error:
                raise CloudError(f"{unknown}; nor could it be found [{error}]: look before you try again") from None
            if len(found) == 1:
                return found[0]
            if found:
                ids = ", ".join(job.id for job in found)
                raise CloudError(f"{unknown}; there are {len(found)} of this name: {ids}")
            if time.monotonic() > end:
                raise CloudError(f"{unknown}; no job of this name is there yet: look before you try again")
            time.sleep(min(random.uniform(0.5, 1) * self.settle / 10, 3.0))

    def show(self, job: str) -> Job:
        """A job by its id."""
        return self._ask("GET", f"training-jobs/{_id(job)}", None, Job.parse)

    def stop(self, job: str) -> Job:
        """Stop a job; one that stops or has stopped already is left alone."""
        try:
            action = {"action_type": "terminate"}
            self._ask("POST", f"training-jobs/{_id(job)}/actions", action, lambda answer: answer)
        except CloudError as error:  # also where it was done and the answer lost
            now = self.show(job) if error.status != 404 else None
            if now is None or now.phase not in ("Terminating", "Terminated"):
                raise
        return self.show(job)

    def jobs(self, name: str = "", offset: int = 0) -> list[Job]:
        """The newest jobs whose names contain `name`, at most 50, skipping the first `offset`."""
        asked = {"offset": offset, "limit": PAGE, "sort_by": "create_time", "order": "desc"}
        if name:
            asked["filters"] = [{"key": "name", "operator": "like", "value": [name]}]
        return self._ask("POST", "training-job-searches", asked, lambda answer: list(map(Job.parse, answer["items"])))

    def find(self, name: str) -> list[Job]:
        """The jobs of exactly this name."""
        found, page = {}, self.jobs(name)
        while new := {job.id: job for job in page if job.id not in found}:  # a job made meanwhile shifts the pages
            found |= new
            if len(page) < PAGE:
                break
            page = self.jobs(name, len(found))
        return [job for job in found.values() if job.name == name]

    def log(self, job: str, task: str = "worker-0") -> str:
        """The end of a task's log, as much of it as the server shows; "" before it has any."""
        path = f"training-jobs/{_id(job)}/tasks/{_id(task)}/logs/preview"
        return self._ask("GET", path, None, lambda answer: _text(answer["content"] or ""))

    def flavors(self, kind: str = "") -> list[dict]:
        """The machines to choose from (flavor_id, ...). kind: CPU, GPU or Ascend."""
        query = f"?{urlencode({'flavor_type': kind})}" if kind else ""
        path = f"training-job-flavors{query}"
        return self._ask("GET", path, None, lambda answer: _named(answer["flavors"], "flavor_id"))

    def engines(self) -> list[dict]:
        """The preset images to choose from (engine_name, engine_version, ...)."""
        keys = "engine_name", "engine_version"
        return self._ask("GET", "training-job-engines", None, lambda answer: _named(answer["items"], *keys))

    def _ask(self, method, path, body, take):
        """What may be asked more than once, until the deadline."""
        tries = Tries(self.deadline)
        while True:
            try:
                return self._once(method, path, body, take)
            except (Unanswered, Busy) as error:
                known = error
            if not tries.count:
                self.notice(f"{known.message}; asking again, {self.deadline:g} s at most")
            time.sleep(tries.wait(known))

    def _once(self, method, path, body, take: Callable):
        """What `take` makes of the answer; Unanswered, Busy or (refused) CloudError."""
        access, secret, token = self._keys
        url = f"{self.endpoint}/v2/{_id(self.project)}/{path}"
        place = f"{method} {url.partition('?')[0]}"
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "X-Project-Id": self.project}
        headers |= {"X-Security-Token": token} if token else {}
        headers = sign(method, url, headers, content, access, secret)
        try:
            with self._opener.open(Request(url, content or None, headers, method=method), timeout=self.timeout) as got:
                status, request, text = got.status, got.headers.get("X-Request-Id"), self._read(got)
        except HTTPError as error:
            raise self._refused(place, error) from None
        except (OSError, HTTPException) as error:  # URLError is an OSError
            cause = getattr(error, "reason", error)
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise CloudError(f"{place}: certificate refused: {cause.verify_message}") from None
            raise Unanswered(self._clean(f"{place}: {type(cause).__name__}: {cause}")) from None
        try:
            return take(json.loads(text or b"{}"))
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
            raise Unanswered(f"{place}: the answer is not what was asked for", status, None, request) from None

    def _read(self, answer):
        """Its body; TimeoutError where it does not end: the timeout is for the time between two bytes."""
        text, end = b"", time.monotonic() + self.deadline
        while block := answer.read1(1 << 16):
            text += block
            if time.monotonic() > end:
                raise TimeoutError("the answer does not end")
        return text

    def _refused(self, place, error):
        """The exception for an HTTP status that is not 2xx."""
        try:
            answer = json.loads(self._read(error))
        except (OSError, HTTPException, ValueError, RecursionError):
            answer = None
        answer = answer if isinstance(answer, dict) else {}
        kind = Busy if error.code == 429 else Unanswered if error.code == 408 or error.code >= 500 else CloudError
        message = answer.get("error_msg") or error.reason or "refused"
        request = error.headers.get("X-Request-Id") or answer.get("request_id")
        return kind(self._clean(f"{place}: {message}"), error.code, str(answer.get("error_code") or ""), request)

    def _clean(self, message):
        return access.cleaned(message, self._keys)


def _text(value):
    """A text as a file can have it: what a server cuts in the middle of a letter leaves half of it."""
    return value.encode("utf-8", "replace").decode()


def _named(items, *keys):
    """Dictionaries with texts for these keys; LookupError, TypeError or AttributeError where there are others."""
    return [{**item, **{key: _text(item[key]) for key in keys}} for item in items]


def _id(text):
    """The id of a job, task or project, if it is one: it becomes a part of a URL."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise CloudError(f"{text!r}: no id of a job, task or project: they have letters, digits, - and _")
    return text
