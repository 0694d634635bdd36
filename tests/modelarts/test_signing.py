"""Signatures compared with those of the vendor's SDK, which vendor.json recorded (record_vendor.py)."""

import json
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote, urlencode

from labkit.modelarts.signing import sign

VENDOR = json.loads(Path(__file__).with_name("vendor.json").read_text(encoding="utf-8"))


def signed(one):
    query = urlencode([tuple(pair) for pair in one["query"]], quote_via=quote)
    url = f"https://{one['host']}{quote(one['path'])}{'?' if query else ''}{query}"
    now = datetime.strptime(one["date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    return sign(one["method"], url, one["headers"], one["body"].encode(), (one["access"], one["secret"]), now)


def test_as_the_vendor_signs():
    for one in VENDOR["signatures"]:
        headers = signed(one)
        assert headers["Authorization"] == one["says"]
        assert headers["X-Sdk-Date"] == one["date"] and headers["Host"] == one["host"]
        assert one["secret"] not in repr(headers)
