"""The client of ModelArts against a server on this machine that checks signatures, and loses answers when told to."""

import logging
import time

import modelarts_server as stubs
import pytest

from labkit.modelarts.client import Busy, Client
from labkit.modelarts.job import JobSpec
from labkit.obs import retrying
from labkit.obs.place import CloudError

SPEC = JobSpec(
    name="cifar10-1", bucket="obs://my-bucket", code="code", boot_file="train.py", flavor="modelarts.npu.1",
    engine={"name": "Ascend-Powered-Engine", "version": "mindspore_2.3.0"}, environment={"GLOG_v": "2"},
)  # fmt: skip
CREATE, SEARCH, SHOW = "POST training-jobs", "POST training-job-searches", "GET training-jobs/ID"
KEYS = (stubs.ACCESS, stubs.SECRET, stubs.TOKEN)
ENVIRONMENT = stubs.KEYS | {"MODELARTS_PROJECT_ID": stubs.PROJECT}


def connect(stub, **options):
    return Client(stub.url, stubs.PROJECT, KEYS, **{"deadline": 2, "timeout": 5, "settle": 0.5, **options})


def test_a_job_from_creation_to_its_end(stub):
    asked = connect(stub)
    job = asked.create(SPEC)
    assert (job.id, job.name, job.phase, job.tasks) == ("job-1", "cifar10-1", "Creating", ("worker-0",))
    assert not job.ended and stub.requests[-1] == (CREATE, SPEC.body())
    stub.jobs["job-1"]["status"] |= {"phase": "Completed", "duration": 61000}
    assert asked.show("job-1").ended and asked.show("job-1").duration == 61000
    assert asked.log("job-1") == "step 1\n"
    assert [one.id for one in asked.jobs()] == ["job-1"] == [one.id for one in asked.find("cifar10-1")]
    stub.jobs["job-1"]["status"] = {"phase": "Hibernating"}  # of the future
    assert asked.show("job-1").phase == "Hibernating" and not asked.show("job-1").ended


def test_find_is_exact_and_jobs_are_the_newest_first(stub):
    asked = connect(stub)
    for name in ("a", "a-1", "b"):
        asked.create(SPEC.model_copy(update={"name": name}))
    assert [job.name for job in asked.jobs()] == ["b", "a-1", "a"]
    assert [job.name for job in asked.jobs("a")] == ["a-1", "a"]
    assert [job.name for job in asked.find("a")] == ["a"] and asked.find("c") == []


# -- Creation, once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault, hidden", [
    ("lose", 2), ("stall", 0), ("html", 0), ("gateway", 2)
])  # fmt: skip
def test_done_but_not_answered(stub, fault, hidden):
    """One job is there, and it is the one that is returned, also where searches show it late."""
    stub.faults[CREATE] = [fault]
    asked = connect(stub, timeout=0.5 if fault == "stall" else 5, settle=3)
    stub.hidden = 1 + hidden  # the first search is the one before creation
    assert asked.create(SPEC).id == "job-1"
    assert len(stub.jobs) == 1 and stub.operations().count(CREATE) == 1


@pytest.mark.parametrize("fault, says", [
    ("drop", "(RemoteDisconnected|ConnectionReset)"), ((503, "<html>"), "status 503"), ((408, {}), "status 408"),
])  # fmt: skip
def test_perhaps_not_done(stub, fault, says):
    stub.faults[CREATE] = [fault]
    message = f"cifar10-1: no answer says.*{says}.*it was not requested again.*none yet: look before"
    with pytest.raises(CloudError, match=message) as caught:
        connect(stub).create(SPEC)
    assert len(str(caught.value).splitlines()) == 1
    assert stub.jobs == {} and stub.operations().count(CREATE) == 1


def test_lost_and_not_to_be_found(stub):
    """Not seen in time, or nobody can look: it is not requested again."""
    stub.faults, stub.hidden = {CREATE: ["lose"]}, 999
    with pytest.raises(CloudError, match="not requested again; jobs of this name: none yet: look before"):
        connect(stub).create(SPEC)
    stub.faults = {CREATE: ["lose"], SEARCH: [(200, {"items": []})] + ["drop"] * 99}
    with pytest.raises(CloudError, match="not requested again; nor could it be found .*given up after"):
        connect(stub, deadline=0.6).create(SPEC)
    assert len(stub.jobs) == 2 and stub.operations().count(CREATE) == 2


@pytest.mark.parametrize("status", [400, 429, 302])
def test_refused(stub, status):
    stub.faults[CREATE] = [(status, {"error_code": "ModelArts.0104", "error_msg": "no\nsuch flavor"})]
    with pytest.raises(CloudError, match="no such flavor") as caught:
        connect(stub).create(SPEC)
    error = caught.value
    assert (error.status, error.code, error.request_id) == (status, "ModelArts.0104", "request-7")
    assert isinstance(error, Busy) == (status == 429)
    assert stub.jobs == {} and stub.operations() == [SEARCH, CREATE]


# -- What may be repeated -----------------------------------------------------------------------------


def test_reads_are_repeated(stub, monkeypatch):
    monkeypatch.setattr(retrying, "LONGEST_WAIT", 0.1)
    notices = []
    asked = connect(stub, timeout=0.5, deadline=20, notice=notices.append)
    asked.create(SPEC)
    stub.faults[SHOW] = ["drop", (503, "<html>"), "html", (429, {}), "empty", "stall"]
    assert asked.show("job-1").id == "job-1" and stub.faults[SHOW] == []
    assert len(notices) == 1 and notices[0].endswith("; trying again, 20 s at most")


BUSY = (503, {"error_code": "APIG.0201", "error_msg": "busy"})


@pytest.mark.parametrize("fault, says, status", [
    (BUSY, r"busy; given up after \d+ tries in \d+ s \(status 503, APIG.0201", 503),
    ("stall", "Read timed out.*given up after 1 tries in 0 s", None),
])  # fmt: skip
def test_reads_end_at_the_deadline(stub, fault, says, status):
    stub.faults[SHOW] = [fault] * 99
    begun = time.monotonic()
    with pytest.raises(CloudError, match=says) as caught:
        connect(stub, deadline=0.3).show("job-1")
    assert time.monotonic() - begun < 10 and caught.value.status == status


def test_stop(stub):
    asked = connect(stub)
    asked.create(SPEC)
    stub.faults["POST training-jobs/actions"] = ["lose"]  # so the repetition is refused: it stops already
    assert asked.stop("job-1").phase == "Terminating" == asked.stop("job-1").phase
    stub.jobs["job-1"]["status"]["phase"] = "Completed"
    with pytest.raises(CloudError, match="cannot be terminated .*ModelArts.2763"):
        asked.stop("job-1")
    with pytest.raises(CloudError, match="does not exist .*status 404"):  # and a refusal is not repeated
        asked.stop("job-9")
    assert stub.operations()[-1] == "POST training-jobs/actions"


@pytest.mark.parametrize("hostile", ["../../flavors", "a?b=c", ""])
def test_ids_stay_ids(stub, hostile):
    asked = connect(stub)
    for ask in (asked.show, asked.stop, asked.log, lambda task: asked.log("job-1", task)):
        with pytest.raises(CloudError, match="not the id of a job"):
            ask(hostile)
    assert stub.requests == []


def test_an_answer_without_what_is_asked_for(stub, monkeypatch):
    monkeypatch.setattr(stubs, "FLAVORS", [{"flavor_type": "CPU"}])
    with pytest.raises(CloudError, match="training-job-flavors: unexpected answer"):
        connect(stub, deadline=0.1).flavors()


# -- Who asks, and whom -------------------------------------------------------------------------------


def test_no_secret_anywhere(stub, caplog, capfd, monkeypatch):
    """The server repeats what it was sent; none of it reaches a message, a log or the terminal."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(stubs, "SECRET", "another")  # the stub's answer has the token and the signature in it
    asked = connect(stub)
    with pytest.raises(CloudError, match="verify aksk signature fail") as caught:
        asked.engines()
    shown = " ".join([str(caught.value), repr(caught.value), repr(asked), caplog.text, *capfd.readouterr()])
    assert "Signature=***" in shown and len(str(caught.value).splitlines()) == 1
    assert not any(secret in shown for secret in KEYS)


@pytest.mark.parametrize("host, authority, says", [
    ("localhost", "ca.pem", None), ("localhost", None, "certificate refused: unable to get"),
    ("other.example", "ca.pem", "certificate refused: Hostname mismatch"),
])  # fmt: skip
def test_tls(certificates, monkeypatch, host, authority, says):
    """Chain and name are verified; a refusal is not repeated."""
    monkeypatch.setenv("no_proxy", "localhost")
    folder, context = certificates
    tls = context(host)
    with stubs.serve(lambda plain: tls.wrap_socket(plain, server_side=True)) as stub:
        environment = ENVIRONMENT | {"MODELARTS_ENDPOINT": stub.url.replace("127.0.0.1", "localhost")}
        environment |= {"MODELARTS_CA_FILE": str(folder / authority)} if authority else {}
        if says is None:
            assert Client.connect(environment).engines() == stubs.ENGINES
            return
        with pytest.raises(CloudError, match=says):
            Client.connect(environment).engines()
        assert stub.requests == []
