"""What Huawei Cloud's own SDK signs and sends, recorded once into vendor.json for test_signing.py and test_job.py.

The SDK weighs 30 MB and pins a database driver exactly, so it is no dependency of the tests. To record again, in an
environment of its own: pip install huaweicloudsdkmodelarts==3.1.219, and run this file.
"""

import json
import random
from importlib.metadata import version
from pathlib import Path

from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.sdk_request import SdkRequest
from huaweicloudsdkcore.signer.signer import Signer
from huaweicloudsdkcore.utils import http_utils
from huaweicloudsdkmodelarts import v1 as sdk

PIECES = ["a", "Z9", "job-1", "x_y", "t~.", "ä", "日本", " ", "+", "&", "=", "%", "*", "'", "(", "!", ":", "@", "$"]


def word(choice):
    return "".join(choice.choices(PIECES, k=choice.randint(1, 6)))


def signature(choice):
    """A random request and what the SDK makes of it."""
    access, secret = (f"{word(choice)}{choice.random()}" for _ in range(2))
    access = access.encode("ascii", "ignore").decode()
    path = "/v2/" + "/".join(word(choice) for _ in range(choice.randint(1, 4))) + choice.choice(["", "/"])
    query = [(word(choice), choice.choice([word(choice), ""])) for _ in range(choice.choice([0, 0, 1, 3]))]
    body = choice.choice(["", "", json.dumps({word(choice): word(choice)}, ensure_ascii=choice.random() < 0.5)])
    headers = {"Content-Type": choice.choice(["application/json", "application/json;charset=UTF-8"])}
    headers |= {f"X-{name}": f" {choice.random()} " for name in choice.sample(["Project-Id", "Security-Token", "b"], 2)}
    date = f"2026{choice.randint(1, 12):02}{choice.randint(1, 28):02}T{choice.randint(0, 23):02}1059Z"
    host = f"modelarts.region-{choice.randint(1, 9)}.example.com{choice.choice(['', ':8443'])}"
    method = choice.choice(["GET", "POST", "PUT", "DELETE"])
    request = SdkRequest(
        method=method, schema="https", host=host, resource_path=path, uri=path, query_params=list(query), body=body,
        header_params={**headers, "X-Sdk-Date": date},
    )  # fmt: skip
    signed = Signer(BasicCredentials(access, secret)).sign(request)
    given = {"method": method, "host": host, "path": path, "query": query, "headers": headers, "body": body}
    return given | {"access": access, "secret": secret, "date": date, "says": signed.header_params["Authorization"]}


def body():
    """What the SDK sends for the job of test_job.py."""
    job = sdk.Job(
        kind="job",
        metadata=sdk.JobMetadata(name="cifar10-full_1"),
        algorithm=sdk.JobAlgorithm(
            code_dir="/my-bucket/course/code/",
            boot_file="/my-bucket/course/code/labs/cifar10/train.py",
            engine=sdk.JobEngine(engine_name="Ascend-Powered-Engine", engine_version="mindspore_2.3.0"),
            parameters=[sdk.Parameters(name="profile", value="full"), sdk.Parameters(name="num_epochs", value="90"),
                        sdk.Parameters(name="run_distribute", value="True")],
            inputs=[sdk.Input(name="data_url", remote=sdk.InputDataInfo(
                obs=sdk.InputDataInfoObs(obs_url="/other-bucket/cifar10/")))],
            outputs=[sdk.Output(name="train_url", remote=sdk.Remote(
                obs=sdk.RemoteObs(obs_url="/my-bucket/course/runs/1/")))],
            environments={"GLOG_v": "2"},
        ),
        spec=sdk.Spec(resource=sdk.SpecResource(flavor_id="modelarts.npu.1", node_count=2),
                      log_export_path=sdk.LogExportPath(obs_url="/my-bucket/course/logs/")),
    )  # fmt: skip
    return http_utils.sanitize_for_serialization(job)


if __name__ == "__main__":
    choice = random.Random(5)
    recorded = {"sdk": f"huaweicloudsdkmodelarts {version('huaweicloudsdkmodelarts')}", "job": body()}
    lines = [f'"{key}": {json.dumps(value)}' for key, value in recorded.items()]
    signatures = ",\n".join(json.dumps(signature(choice), ensure_ascii=False) for _ in range(40))
    text = "{\n" + ",\n".join([*lines, f'"signatures": [\n{signatures}\n]']) + "\n}\n"
    Path(__file__).with_name("vendor.json").write_text(text, encoding="utf-8")
