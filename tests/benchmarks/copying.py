"""Copying compared with boto3's transfer manager, on one object server: OpenStack Swift, as in tests/obs.

Also over TLS, where nginx is installed: it passes on what it decrypts.

    python -m tests.benchmarks.copying PEER up|down FOLDER BUCKET     one line of JSON: seconds, peak memory

Every turn is a process of its own, so its peak memory is its own; its imports are not timed. What a peer sent up it
gets back, and that is compared with the original, untimed.
"""

import filecmp
import itertools
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from tests.benchmarks import rotated

WORKERS, PART = 8, 8 << 20  # of every peer
SMALL = 4 << 10
SERVERS = Path(__file__).parents[1] / "obs"
NGINX = """
pid {folder}/nginx.pid; error_log {folder}/nginx.log; worker_processes 1; daemon off; events {{}}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; client_max_body_size 0;
  proxy_request_buffering off; proxy_buffering off; proxy_http_version 1.1;
  server {{
    listen 127.0.0.1:{port} ssl; ssl_certificate {folder}/tls.pem; ssl_certificate_key {folder}/tls.key;
    location / {{ proxy_pass {url}; proxy_set_header Host $http_host; proxy_set_header Connection ""; }}
  }}
}}
"""


def labkit_copy(way, folder, bucket):
    from labkit.obs.copying import copy
    from labkit.obs.store import Store

    store = Store.connect()
    ends = (folder, f"s3://{bucket}") if way == "up" else (f"s3://{bucket}", folder)
    return lambda: copy(*ends, jobs=WORKERS, store=store)


def boto3_copy(way, folder, bucket):
    """boto3's own TransferManager, which its upload_file and download_file use as well, with its own checksums."""
    import boto3
    from boto3.s3.transfer import TransferConfig, create_transfer_manager
    from botocore.config import Config

    client = boto3.client(
        "s3", endpoint_url=os.environ["OBS_ENDPOINT"], region_name="us-east-1",
        aws_access_key_id=os.environ["OBS_ACCESS_KEY_ID"], aws_secret_access_key=os.environ["OBS_SECRET_ACCESS_KEY"],
        verify=os.environ.get("OBS_CA_FILE"),
        config=Config(s3={"addressing_style": "path"}, max_pool_connections=WORKERS),
    )  # fmt: skip
    config = TransferConfig(multipart_threshold=PART + 1, multipart_chunksize=PART, max_concurrency=WORKERS)

    def turn():
        with create_transfer_manager(client, config) as manager:
            if way == "up":
                futures = [manager.upload(str(path), bucket, path.name) for path in sorted(Path(folder).iterdir())]
            else:
                pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
                keys = [item["Key"] for page in pages for item in page["Contents"]]
                futures = [manager.download(bucket, key, f"{folder}/{key}") for key in keys]
            for future in futures:
                future.result()

    return turn


PEERS = {  # function, package, and the checksums that it compares, or has the server compare, on this server
    "boto3's transfer manager": (boto3_copy, "boto3", {"up": "CRC-32, SHA-256", "down": "none"}),
    "labkit.obs.copy": (labkit_copy, "esdk-obs-python", {"up": "MD5", "down": "MD5 or SHA-256"}),
}
REFERENCE = "boto3's transfer manager"


def measure(report, rounds=7, files=1000, mebibytes=256) -> dict:
    """Seconds and memory of every peer, by turns; report(line) on the way."""
    sys.path.insert(0, str(SERVERS))
    from swift import Swift

    cases = {f"{files:,} files of 4 KiB": (files, SMALL), f"one file of {mebibytes} MiB": (1, mebibytes << 20)}
    overs = ["", " over TLS"] if shutil.which("nginx") else [""]
    keys = [(case + over, way) for over in overs for case in cases for way in ("up", "down")]
    found = {key: {peer: [] for peer in PEERS} for key in keys}
    with tempfile.TemporaryDirectory() as folder:
        server = Swift(Path(folder) / "swift")
        try:
            sources = {case: _files(Path(folder) / case.replace(" ", "-"), *files) for case, files in cases.items()}
            for over, (case, source) in itertools.product(overs, sources.items()):
                with _front(server, Path(folder), over) as front:
                    for number in range(rounds):
                        for peer in rotated(list(PEERS), number):
                            turns = _there_and_back(peer, source, server.new_bucket(), front, Path(folder))
                            for way, told in turns.items():
                                found[case + over, way][peer].append(told)
                        report(f"{case}{over}: round {number + 1} of {rounds}")
        finally:
            server.stop()
    results = []
    for (case, way), turns in found.items():
        count, size = cases[case.removesuffix(overs[-1])] if overs[-1] else cases[case]
        results.append(_case(case, way, count * size, count, turns))
    server = "OpenStack Swift with s3api, on this machine"
    return {"rounds": rounds, "workers": WORKERS, "server": server, "cases": results}


@contextmanager
def _front(server, folder, over):
    """The environment that leads to the server, by nginx if `over` says so."""
    if not over:
        yield server.environment()
        return
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost", "-keyout", folder / "tls.key", "-out", folder / "tls.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, url=server.url))
    process = subprocess.Popen(["nginx", "-c", folder / "nginx.conf"])
    try:
        yield server.environment() | {
            "OBS_ENDPOINT": f"https://localhost:{port}", "OBS_CA_FILE": str(folder / "tls.pem"),
        }  # fmt: skip
    finally:
        process.terminate()
        process.wait()


def table(case):
    """A case's rows as text."""
    lines = [f"\n{case['name']} ({case['unit']}); speed relative to {case['reference']}, lowest to highest"]
    for row in case["rows"]:
        lines.append(
            f"  {row['peer']:26} {row['seconds']:7.2f} s {row['megabytes_per_second']:8.1f} MB/s "
            f"{row['speed']:6.2f}x  ({row['speed_lowest']:.2f} to {row['speed_highest']:.2f})  "
            f"peak {row['peak_mb']:4.0f} MB  checksums: {row['checksums']}"
        )
    return "\n".join(lines)


def _there_and_back(peer, source, bucket, front, folder):
    """What the peer told of its two turns, by way; raises SystemExit where a byte is lost. front: the server's."""
    back, told = folder / "back", {}
    back.mkdir()
    for way, place in (("up", source), ("down", back)):
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.copying", peer, way, place, bucket], stdout=subprocess.PIPE,
            text=True, env=os.environ | front | {"XDG_CACHE_HOME": str(folder / "cache")},
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{peer}, {way}: ended with status {done.returncode}; see above")
        told[way] = json.loads(done.stdout.splitlines()[-1])
    names = sorted(path.name for path in source.iterdir())
    _, other, missing = filecmp.cmpfiles(source, back, names, shallow=False)
    if other or missing:
        sys.exit(f"{peer}: of {len(names)} files, {len(other)} came back as others and {len(missing)} not at all")
    shutil.rmtree(back)
    _empty(front, bucket)
    return told


def _empty(front, bucket):
    from labkit.obs.copying import rm
    from labkit.obs.store import Store

    rm(f"s3://{bucket}", recursive=True, empty_bucket=True, store=Store.connect(front))


def _files(folder, count, size):
    folder.mkdir()
    for number in range(count):
        with open(folder / f"{number:06}.bin", "wb") as file:
            for left in range(size, 0, -(1 << 20)):
                file.write(random.Random(f"{number}, {left}").randbytes(min(left, 1 << 20)))
    return folder


def _case(case, way, size, files, turns):
    rows = []
    for peer, told in turns.items():
        _, package, checksums = PEERS[peer]
        seconds = [one["seconds"] for one in told]
        ratios = [one["seconds"] / own for own, one in zip(seconds, turns[REFERENCE], strict=True)]
        typical = statistics.median(seconds)
        row = {"peer": peer, "version": f"{package} {metadata.version(package)}", "checksums": checksums[way]}
        row |= {"seconds": typical, "megabytes_per_second": size / typical / 1e6, "files_per_second": files / typical}
        row |= {"speed": statistics.median(ratios), "speed_lowest": min(ratios), "speed_highest": max(ratios)}
        rows.append(row | {"peak_mb": max(one["peak"] for one in told) / 1e6})
    unit = f"a folder {'to' if way == 'up' else 'from'} a bucket, {WORKERS} requests at a time"
    return {"name": f"{case}, {way}", "unit": unit, "reference": REFERENCE, "rows": rows}


def _peak():
    """Most memory, in bytes, that this process or one that it started has had at a time."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss has the memory of the process that started this one in it
        own = int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit)


if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[1] not in PEERS:
        sys.exit(__doc__)
    turn = PEERS[sys.argv[1]][0](*sys.argv[2:])
    start = time.perf_counter()
    turn()
    print(json.dumps({"seconds": time.perf_counter() - start, "peak": _peak()}))
