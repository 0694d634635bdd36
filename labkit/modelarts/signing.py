"""How Huawei Cloud's API gateway knows who asks: SDK-HMAC-SHA256, as its guide to signing requests describes it.

The secret key never travels; what travels is a hash of the request made with it, good for about a quarter of an hour.
"""

import hashlib
import hmac
from datetime import datetime, timezone
from urllib.parse import parse_qsl, quote, unquote, urlsplit

ALGORITHM = "SDK-HMAC-SHA256"


def sign(method: str, url: str, headers: dict, body: bytes, access: str, secret: str, now=None) -> dict:
    """The headers with Host, X-Sdk-Date and Authorization added. All of them are signed. now: a datetime in UTC."""
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
