"""Sign requests to Huawei Cloud's API gateway with SDK-HMAC-SHA256, following its guide to signing requests.

The secret key is never sent, only a keyed hash of the request, which is valid for about 15 minutes.
"""

import hashlib
import hmac
from datetime import datetime, timezone
from urllib.parse import parse_qsl, quote, unquote, urlsplit

ALGORITHM = "SDK-HMAC-SHA256"


def sign(method: str, url: str, headers: dict, body: bytes, access: str, secret: str, now=None) -> dict:
    """The headers, all signed, with Host, X-Sdk-Date and Authorization added. now: a datetime in UTC."""
    parts, now = urlsplit(url), now or datetime.now(timezone.utc)
    headers = headers | {"Host": parts.netloc, "X-Sdk-Date": now.strftime("%Y%m%dT%H%M%SZ")}
    signed = sorted((name.lower(), value.strip()) for name, value in headers.items())
    names = ";".join(name for name, _ in signed)
    path = "/".join(_quoted(part) for part in unquote(parts.path).split("/"))
    query = sorted(parse_qsl(parts.query, keep_blank_values=True))
    request = "\n".join([
        method,
        path if path.endswith("/") else f"{path}/",
        "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in query),
        *(f"{name}:{value}" for name, value in signed),
        "",
        names,
        hashlib.sha256(body).hexdigest(),
    ])  # fmt: skip
    to_sign = "\n".join([ALGORITHM, headers["X-Sdk-Date"], hashlib.sha256(request.encode()).hexdigest()])
    signature = hmac.new(secret.encode(), to_sign.encode(), hashlib.sha256).hexdigest()
    return headers | {"Authorization": f"{ALGORITHM} Access={access}, SignedHeaders={names}, Signature={signature}"}


def _quoted(text):
    return quote(text, safe="~")
