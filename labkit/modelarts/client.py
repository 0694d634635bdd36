"""ModelArts, API v2: training jobs (Job) and their server (Client)."""

import json
import os
import random
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from urllib.parse import urlencode

import requests

from labkit.modelarts.job import JobSpec
from labkit.modelarts.signing import sign
from labkit.obs import access
from labkit.obs.place import CloudError
from labkit.obs.retrying import Tries

PAGE = 50  # jobs per answer
ENDED = ("Completed", "Failed", "Terminated", "Abnormal")


@dataclass(frozen=True)
class Job:
    """A job. phase: Creating, Pending, Running, Terminating, or one of ENDED; times in milliseconds."""

    id: str
    name: str
    phase: str
    created: int = 0
    duration: int = 0
    tasks: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """True in a final phase."""
        return self.phase in ENDED

    @classmethod
    def parse(cls, answer):
        """The job in an answer; LookupError, TypeError or ValueError if there is none."""
        metadata, status = answer["metadata"], answer.get("status") or {}
        times = int(metadata.get("create_time") or 0), int(status.get("duration") or 0)
        tasks = tuple(map(str, status.get("tasks") or ()))
        return cls(str(metadata["id"]), str(metadata["name"]), str(status.get("phase") or "unknown"), *times, tasks)


class Unanswered(CloudError):
    """No answer, or none that says whether the request was executed: a timeout, a reset, 5xx, or unexpected content."""


class Busy(CloudError):
    """The request was not executed and is worth retrying (429)."""


@dataclass(frozen=True, repr=False)  # which would show the keys
class Client:
    """ModelArts in one region and project. deadline: seconds after which a request is not repeated any more.

    ca: file of certificates to trust instead of the usual ones. settle: seconds to wait for a job to appear if the
    request to create it was not answered. notice: called with a line of text if an answer takes longer than usual.
    """

    endpoint: str
    project: str
    _keys: tuple  # access key, secret key, security token
    ca: str | None = None
    deadline: float = 120.0
    timeout: float = 30.0  # of a request
    settle: float = 30.0
    notice: Callable[[str], None] = lambda line: None

    @classmethod
    def connect(cls, environment=os.environ, **options):
        """The region, project and account that the environment or the SDKs' file names; raises CloudError."""
        keys, ca = access.credentials(environment), environment.get("MODELARTS_CA_FILE")
        access.tls(environment, "MODELARTS_CA_FILE")  # if the file cannot be read, this error names the variable
        return cls(access.modelarts_url(environment).rstrip("/"), access.project(environment), keys, ca, **options)

    def create(self, spec: JobSpec) -> Job:
        """Start a job exactly once: if the answer is lost, look for the job by name instead of requesting it again.

        CloudError if the name is taken, the job is refused, or it is unknown whether the job was created.
        """
        self.require_free(spec.name)
        try:
            return self._once("POST", "training-jobs", spec.body(), Job.parse)
        except Unanswered as error:
            lost = error
        self.notice(f"{spec.name}: no answer to its creation; looking for the job, {self.settle:g} s at most")
        unknown = f"{spec.name}: no answer says whether this job was created [{lost}]; it was not requested again"
        end, jobs = time.monotonic() + self.settle, []
        while not jobs and time.monotonic() < end:
            time.sleep(min(random.uniform(0.5, 1) * self.settle / 10, 3.0))
            try:
                jobs = self.find(spec.name)
            except CloudError as error:
                raise CloudError(f"{unknown}; nor could it be found [{error}]: look before you try again") from None
        if len(jobs) == 1:
            return jobs[0]
        ids = ", ".join(job.id for job in jobs) or "none yet"
        raise CloudError(f"{unknown}; jobs of this name: {ids}: look before you try again")

    def require_free(self, name: str) -> None:
        """CloudError if there is a job of this name."""
        for job in self.find(name):
            raise CloudError(f"{name}: there is a job of this name already ({job.id}, {job.phase})")

    def show(self, job: str) -> Job:
        """A job by its id."""
        return self._ask("GET", f"training-jobs/{_id(job)}", None, Job.parse)

    def stop(self, job: str) -> Job:
        """Stop a job; a job that is stopping or has been stopped is left alone."""
        try:
            self._ask("POST", f"training-jobs/{_id(job)}/actions", {"action_type": "terminate"}, lambda answer: answer)
        except CloudError as error:  # the job may be stopping nevertheless, if only the answer was lost
            now = self.show(job) if error.status != 404 else None
            if now is None or now.phase not in ("Terminating", "Terminated"):
                raise
        return self.show(job)

    def jobs(self, name: str = "", offset: int = 0) -> list[Job]:
        """The newest jobs whose names contain `name`, at most 50, after skipping `offset`."""
        query = {"offset": offset, "limit": PAGE, "sort_by": "create_time", "order": "desc"}
        if name:
            query["filters"] = [{"key": "name", "operator": "like", "value": [name]}]
        return self._ask("POST", "training-job-searches", query, lambda answer: list(map(Job.parse, answer["items"])))

    def find(self, name: str) -> list[Job]:
        """All jobs with exactly this name."""
        page = self.jobs(name)
        jobs = {job.id: job for job in page}
        while len(page) == PAGE:
            page = [job for job in self.jobs(name, len(jobs)) if job.id not in jobs]
            jobs |= {job.id: job for job in page}
        return [job for job in jobs.values() if job.name == name]

    def log(self, job: str, task: str = "worker-0") -> str:
        """The end of a task's log, as much as the server shows; "" if it is still empty."""
        path = f"training-jobs/{_id(job)}/tasks/{_id(task)}/logs/preview"
        text = self._ask("GET", path, None, lambda answer: str(answer["content"] or ""))
        return text.encode("utf-8", "replace").decode()  # the log may be cut in the middle of a character

    def flavors(self, device: str = "") -> list[dict]:
        """The machines to choose from (flavor_id, ...). device: CPU, GPU or Ascend."""
        query = f"?{urlencode({'flavor_type': device})}" if device else ""
        return self._ask("GET", f"training-job-flavors{query}", None, _sorted("flavors", "flavor_id"))

    def engines(self) -> list[dict]:
        """The preset images to choose from (engine_name, engine_version, ...)."""
        return self._ask("GET", "training-job-engines", None, _sorted("items", "engine_name", "engine_version"))

    def _ask(self, method, path, body, parse):
        """Make a request that may be repeated, until the deadline."""
        tries = Tries(self.deadline)
        while True:
            try:
                return self._once(method, path, body, parse)
            except (Unanswered, Busy) as error:
                failure = error
            if not tries.count:
                self.notice(f"{failure.message}; trying again, {self.deadline:g} s at most")
            time.sleep(tries.wait(failure))

    def _once(self, method, path, body, parse: Callable):
        """The parsed answer to one request; raises Unanswered, Busy or, if refused, CloudError."""
        url = f"{self.endpoint}/v2/{_id(self.project)}/{path}"
        place = f"{method} {url.partition('?')[0]}"
        content = b"" if body is None else json.dumps(body).encode()
        try:
            answer = requests.request(  # a redirect is refused: the signature is for one URL
                method, url, data=content, auth=self._sign, verify=self.ca or True, allow_redirects=False,
                timeout=min(self.timeout, self.deadline),
            )  # fmt: skip
        except requests.RequestException as error:
            cause = _cause(error)
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise CloudError(f"{place}: certificate refused: {cause.verify_message}") from None
            raise Unanswered(access.cleaned(f"{place}: {type(cause).__name__}: {cause}", self._keys)) from None
        if not 200 <= answer.status_code < 300:
            raise self._refused(place, answer)
        try:
            return parse(json.loads(answer.content or b"{}"))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise Unanswered(f"{place}: unexpected answer", answer.status_code) from None

    def _sign(self, request):
        """Sign a prepared request."""
        *keys, token = self._keys
        headers = {"Content-Type": "application/json", "X-Project-Id": self.project}
        headers |= {"X-Security-Token": token} if token else {}
        request.headers.update(sign(request.method, request.url, headers, request.body or b"", keys))
        return request

    def _refused(self, place, answer):
        """The exception for an HTTP status that is not 2xx."""
        try:
            details = dict(json.loads(answer.content))
        except (ValueError, TypeError):
            details = {}
        status = answer.status_code
        error = Busy if status == 429 else Unanswered if status == 408 or status >= 500 else CloudError
        message = access.cleaned(f"{place}: {details.get('error_msg') or answer.reason or 'refused'}", self._keys)
        return error(message, status, str(details.get("error_code") or ""), answer.headers.get("X-Request-Id"))


def _sorted(key, *names):  # names: fields that every entry must have
    return lambda answer: sorted(answer[key], key=itemgetter(*names))


def _cause(error):
    """The innermost error: requests and urllib3 wrap errors in errors."""
    while inner := next((part for part in (getattr(error, "reason", None), *error.args)
                         if isinstance(part, Exception)), None):  # fmt: skip
        error = inner
    return error


def _id(text):
    """The id of a job, task or project, checked because it becomes part of a URL."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise CloudError(f"{text!r}: not the id of a job, task or project, which has only letters, digits, - and _")
    return text
