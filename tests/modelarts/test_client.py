"""The client of ModelArts against a server on this machine that checks signatures, and loses answers when told to."""

import json
import time

import modelarts_stub as stubs
import pytest

from labkit.modelarts import client
from labkit.modelarts.client import Busy, Client
from labkit.modelarts.job import JobSpec
from labkit.obs import retrying
from labkit.obs.place import CloudError

SPEC = JobSpec(
    name="cifar10-1", bucket="obs://my-bucket", code="code", boot_file="train.py", flavor="modelarts.npu.1",
    engine={"name": "Ascend-Powered-Engine", "version": "mindspore_2.3.0"}, environment={"GLOG_v": "2"},
)  # fmt: skip
CREATE, SEARCH = "POST training-jobs", "POST training-job-searches"
KEYS = (stubs.ACCESS, stubs.SECRET, stubs.TOKEN)


def connect(stub, **options):
    return Client(stub.url, stubs.PROJECT, KEYS, **{"deadline": 2, "timeout": 5, "settle": 0.5, **options})


def test_a_job_from_creation_to_its_end(stub):
    asked = connect(stub)
    job = asked.create(SPEC)
    assert (job.id, job.name, job.phase, job.tasks) == ("job-1", "cifar10-1", "Creating", ("worker-0",))
    assert not job.ended
    assert stub.asked[-1] == (CREATE, SPEC.body())
    stub.jobs["job-1"]["status"] |= {"phase": "Completed", "duration": 61000}
    assert asked.show("job-1").ended and asked.show("job-1").duration == 61000
    assert asked.log("job-1") == "step 1\n"
    assert [one.id for one in asked.jobs()] == ["job-1"] == [one.id for one in asked.find("cifar10-1")]


@pytest.mark.parametrize("phase", client.PHASES)
def test_phases(stub, phase):
    asked = connect(stub)
    asked.create(SPEC)
    stub.jobs["job-1"]["status"]["phase"] = phase
    assert asked.show("job-1").phase == phase
    assert asked.show("job-1").ended == (phase in ("Completed", "Failed", "Terminated", "Abnormal"))


def test_a_phase_of_the_future_is_told_as_it_is(stub):
    asked = connect(stub)
    asked.create(SPEC)
    stub.jobs["job-1"]["status"] = {"phase": "Hibernating"}
    assert asked.show("job-1").phase == "Hibernating" and not asked.show("job-1").ended


def test_find_is_exact_and_jobs_are_the_newest_first(stub):
    asked = connect(stub)
    for name in ("a", "a-1", "b"):
        asked.create(SPEC.model_copy(update={"name": name}))
    assert [job.name for job in asked.jobs()] == ["b", "a-1", "a"]
    assert [job.name for job in asked.jobs("a")] == ["a-1", "a"]
    assert [job.name for job in asked.find("a")] == ["a"] and asked.find("c") == []


def test_find_looks_behind_the_first_page(stub):
    asked = connect(stub)
    asked.create(SPEC)
    for number in range(client.PAGE):
        metadata = {"id": f"newer-{number}", "name": f"cifar10-1-{number}"}
        stub.jobs[f"newer-{number}"] = {"metadata": metadata, "status": {"phase": "Completed"}}
    assert len(asked.jobs("cifar10-1")) == client.PAGE
    assert [job.id for job in asked.find("cifar10-1")] == ["job-1"]


def add(jobs, *ids):
    """Jobs of one name."""
    for one in ids:
        jobs[one] = {"metadata": {"id": one, "name": SPEC.name}, "status": {"phase": "Completed"}}


def test_find_on_a_server_that_knows_no_offset(stub):
    """It shows the same page for ever."""
    add(stub.jobs, *map(str, range(2 * client.PAGE)))
    stub.offsets = False
    assert len(connect(stub).find(SPEC.name)) == client.PAGE and stub.operations() == [SEARCH] * 2


def test_a_job_that_is_created_between_two_pages(stub):
    """It moves the last one of the first page to the second."""
    before = [str(number) for number in range(2 * client.PAGE)]
    add(stub.jobs, *before)
    stub.faults[SEARCH] = [None, lambda jobs: add(jobs, "newest")]
    found = [job.id for job in connect(stub).find(SPEC.name)]
    assert sorted(found) == sorted(before) and "newest" in stub.jobs


def test_flavors_and_engines(stub):
    asked = connect(stub)
    assert [one["flavor_id"] for one in asked.flavors()] == ["modelarts.npu.1", "modelarts.cpu.8"]
    assert [one["flavor_id"] for one in asked.flavors("Ascend")] == ["modelarts.npu.1"]
    assert asked.engines() == stubs.ENGINES


# -- Creation, once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["lose", "stall", "html", "empty", "gateway"])
@pytest.mark.parametrize("hidden", [0, 2])
def test_done_but_not_answered(stub, fault, hidden):
    """One job is there, and it is the one that comes back, also where searches show it late."""
    stub.faults[CREATE] = [fault]
    asked = connect(stub, timeout=0.5 if fault == "stall" else 5, settle=3)
    stub.hidden = 1 + hidden  # the first search is the one before creation
    assert asked.create(SPEC).id == "job-1"
    assert len(stub.jobs) == 1 and stub.operations().count(CREATE) == 1


@pytest.mark.parametrize("fault, says", [
    ("drop", "(RemoteDisconnected|ConnectionReset)"), ((500, {"error_code": "ModelArts.0101"}), "ModelArts.0101"),
    ((503, "<html>"), "status 503"), ((504, {}), "status 504"), ((408, {}), "status 408"),
])  # fmt: skip
def test_perhaps_not_done(stub, fault, says):
    stub.faults[CREATE] = [fault]
    begun = time.monotonic()
    told = f"cifar10-1: no answer says.*{says}.*it was not requested again.*look"
    with pytest.raises(CloudError, match=told) as caught:
        connect(stub).create(SPEC)
    assert time.monotonic() - begun < 30 and len(str(caught.value).splitlines()) == 1
    assert stub.jobs == {} and stub.operations().count(CREATE) == 1


def test_lost_and_not_seen_in_time(stub):
    stub.faults, stub.hidden = {CREATE: ["lose"]}, 999
    with pytest.raises(CloudError, match="not requested again; no job of this name is there yet: look before"):
        connect(stub).create(SPEC)
    assert len(stub.jobs) == 1 and stub.operations().count(CREATE) == 1


def test_lost_and_nobody_can_look(stub):
    stub.faults = {CREATE: ["lose"], SEARCH: [(200, {"items": []})] + ["drop"] * 99}
    with pytest.raises(CloudError, match="not requested again; nor could it be found .*given up after"):
        connect(stub, deadline=0.6).create(SPEC)
    assert len(stub.jobs) == 1 and stub.operations().count(CREATE) == 1


def test_lost_and_somebody_else_took_the_name(stub):
    asked = connect(stub)
    asked.create(SPEC)
    stub.faults, stub.hidden = {CREATE: ["lose"]}, 1
    with pytest.raises(CloudError, match="there are 2 of this name: job-2, job-1"):
        asked.create(SPEC)


def test_a_name_that_is_taken(stub):
    connect(stub).create(SPEC)
    with pytest.raises(CloudError, match=r"cifar10-1: there is a job of this name already \(job-1, Creating\)"):
        connect(stub).create(SPEC)
    assert stub.operations().count(CREATE) == 1


@pytest.mark.parametrize("status", [400, 403, 404, 409, 429, 302, 307])
def test_refused(stub, status):
    stub.faults[CREATE] = [(status, {"error_code": "ModelArts.0104", "error_msg": "no\nsuch flavor"})]
    with pytest.raises(CloudError, match="no such flavor") as caught:
        connect(stub).create(SPEC)
    error = caught.value
    assert (error.status, error.code, error.request_id) == (status, "ModelArts.0104", "request-7")
    assert isinstance(error, Busy) == (status == 429)
    assert stub.jobs == {} and stub.operations() == [SEARCH, CREATE]


def test_no_search_no_creation(stub):
    stub.faults[SEARCH] = [(403, {"error_code": "ModelArts.0002"})]
    with pytest.raises(CloudError, match="Forbidden .*ModelArts.0002"):
        connect(stub).create(SPEC)
    assert stub.operations() == [SEARCH]


# -- What may be repeated -----------------------------------------------------------------------------


def test_reads_are_repeated(stub, monkeypatch):
    monkeypatch.setattr(retrying, "LONGEST_WAIT", 0.1)
    told = []
    asked = connect(stub, timeout=0.5, deadline=20, notice=told.append)
    asked.create(SPEC)
    stub.faults["GET training-jobs/ID"] = ["drop", (503, "<html>"), "html", (429, {}), "empty", "stall"]
    assert asked.show("job-1").id == "job-1" and len(told) == 1 and told[0].endswith("; asking again, 20 s at most")
    assert stub.faults["GET training-jobs/ID"] == []


def test_reads_end_at_the_deadline(stub):
    stub.faults["GET training-job-engines"] = [(503, {"error_code": "APIG.0201", "error_msg": "busy"})] * 99
    begun = time.monotonic()
    with pytest.raises(CloudError, match=r"busy; given up after \d+ tries in \d+ s \(status 503, APIG.0201") as caught:
        connect(stub, deadline=1).engines()
    assert time.monotonic() - begun < 10 and caught.value.status == 503


@pytest.mark.parametrize("status", [200, 503])
def test_an_answer_that_comes_a_byte_at_a_time(stub, status):
    """The socket's timeout never passes; all of it would take 40 seconds."""
    stub.faults["GET training-job-engines"] = [(status, json.dumps({"items": []}) + " " * 200, True)] * 99
    begun = time.monotonic()
    with pytest.raises(CloudError, match=r"(does not end|Service Unavailable); given up after"):
        connect(stub, deadline=1).engines()
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_is_not_repeated(stub, status):
    stub.faults["GET training-job-engines"] = [(status, {})] * 9
    with pytest.raises(CloudError) as caught:
        connect(stub).engines()
    assert caught.value.status == status and len(stub.asked) == 1


def test_stop(stub):
    asked = connect(stub)
    asked.create(SPEC)
    stub.faults["POST training-jobs/actions"] = ["lose"]  # so the repetition is refused: it stops already
    assert asked.stop("job-1").phase == "Terminating" == asked.stop("job-1").phase
    stub.jobs["job-1"]["status"]["phase"] = "Completed"
    with pytest.raises(CloudError, match="cannot be terminated .*ModelArts.2763"):
        asked.stop("job-1")
    with pytest.raises(CloudError, match="does not exist .*status 404"):
        asked.stop("job-9")


@pytest.mark.parametrize("hostile", ["../../flavors", "a b", "a?b=c", "a/b", "é", "", "a\n"])
def test_ids_stay_ids(stub, hostile):
    asked = connect(stub)
    for ask in (asked.show, asked.stop, asked.log, lambda task: asked.log("job-1", task)):
        with pytest.raises(CloudError, match="no id of a job"):
            ask(hostile)
    assert stub.asked == []
