"""Servers and keys for the cloud, from the environment or the credentials file of Huawei Cloud's SDKs."""

import configparser
import re
import ssl
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from labkit.obs.place import CloudError

KEYS = (("OBS_ACCESS_KEY_ID", "OBS_SECRET_ACCESS_KEY", "OBS_SECURITY_TOKEN"),
        ("HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_SK", "HUAWEICLOUD_SDK_SECURITY_TOKEN"),
        ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SECURITY_TOKEN"))  # by precedence; a job has the last  # fmt: skip
LOCALHOST = ("127.0.0.1", "::1", "localhost")
FILE = "~/.huaweicloud/credentials"
HELP = """\b
The environment names the servers and the account.
OBS server    OBS_ENDPOINT; in a job S3_ENDPOINT and S3_USE_HTTPS (0 or 1)
account       OBS_ACCESS_KEY_ID, OBS_SECRET_ACCESS_KEY, OBS_SECURITY_TOKEN
              or HUAWEICLOUD_SDK_AK, HUAWEICLOUD_SDK_SK and
                 HUAWEICLOUD_SDK_SECURITY_TOKEN
              or ACCESS_KEY_ID, SECRET_ACCESS_KEY, SECURITY_TOKEN (in a job)
              or ak, sk, security_token in ~/.huaweicloud/credentials
proxy         http_proxy, https_proxy, no_proxy
ModelArts     MODELARTS_PROJECT_ID, HUAWEICLOUD_SDK_PROJECT_ID, or project_id
              in that file; the region of OBS_ENDPOINT, or MODELARTS_REGION
rarely        OBS_SIGNATURE (obs, v2 or v4), OBS_REGION (for v4),
              MODELARTS_ENDPOINT (another server), and files of certificates
              to trust, OBS_CA_FILE and MODELARTS_CA_FILE
"""  # the epilog of every command that uses the cloud


def credentials(environment) -> tuple[str, str, str | None]:
    """Access key, secret key and token, which may be None. Raises CloudError, which quotes none of them."""
    for names in KEYS:
        access, secret = (environment.get(name) for name in names[:2])
        if access and secret:
            return tuple(_valid_in_headers(name, environment.get(name)) for name in names)
        if access or secret:
            present, missing = names[:2] if access else names[1::-1]
            raise CloudError(f"{missing} is not set, but {present} is")
    section = _file()
    if section.get("ak") and section.get("sk"):
        return tuple(_valid_in_headers(f"{FILE}: {name}", section.get(name)) for name in ("ak", "sk", "security_token"))
    raise CloudError(f"no credentials: set {KEYS[0][0]} and {KEYS[0][1]}, or write ak and sk below [basic] in {FILE}")


def project(environment) -> str:
    """Id of the ModelArts project; raises CloudError."""
    for name in ("MODELARTS_PROJECT_ID", "HUAWEICLOUD_SDK_PROJECT_ID"):
        if environment.get(name):
            return _valid_in_headers(name, environment[name])
    if project_id := _file().get("project_id"):
        return _valid_in_headers(f"{FILE}: project_id", project_id)
    raise CloudError(f"no project: set MODELARTS_PROJECT_ID, or write project_id below [basic] in {FILE}")


def obs_url(environment) -> str:
    """URL of the object server: OBS_ENDPOINT, or in a job S3_ENDPOINT; raises CloudError.

    http:// is accepted for any host: a server in your own network may have no certificate, and a job may set
    S3_USE_HTTPS=0. Secret keys are never sent, but a token is.
    """
    url = environment.get("OBS_ENDPOINT", "").strip()
    if not url and (url := environment.get("S3_ENDPOINT", "").strip()) and "://" not in url:
        url = f"{'http' if environment.get('S3_USE_HTTPS', '').strip() == '0' else 'https'}://{url}"
    if not url:
        raise CloudError("no server: set OBS_ENDPOINT, for example https://obs.cn-north-4.myhuaweicloud.com")
    url = _checked(url, "OBS_ENDPOINT (in a job, S3_ENDPOINT)")
    if urlsplit(url)._replace(scheme="", netloc="").geturl().strip("/"):
        raise CloudError("OBS_ENDPOINT (in a job, S3_ENDPOINT): must not have a path after the host or port")
    return url


def modelarts_url(environment) -> str:
    """URL of ModelArts: MODELARTS_ENDPOINT, or from MODELARTS_REGION or OBS_ENDPOINT's region; raises CloudError."""
    if url := environment.get("MODELARTS_ENDPOINT", "").strip():
        url = _checked(url, "MODELARTS_ENDPOINT")
        if is_unencrypted(url):
            raise CloudError("MODELARTS_ENDPOINT: must be https://HOST (http:// only on this machine, for rehearsals)")
        return url
    host = environment.get("OBS_ENDPOINT", "").strip().lower().rpartition("://")[2]
    match = re.fullmatch(r"obs\.([a-z0-9-]+)\.myhuaweicloud\.com/?", host)
    name = environment.get("MODELARTS_REGION") or (match and match[1])
    if not name or not re.fullmatch(r"[a-z0-9-]+", name):
        raise CloudError("no region: set MODELARTS_REGION, for example to cn-north-4, or MODELARTS_ENDPOINT")
    return f"https://modelarts.{name}.myhuaweicloud.com"


def is_unencrypted(url) -> bool:
    """Whether others on the network can read what is sent to a URL: http:// to another machine."""
    return urlsplit(url).scheme == "http" and urlsplit(url).hostname not in LOCALHOST


def proxy(url) -> dict:
    """The SDK's settings for the proxy that http_proxy, https_proxy and no_proxy specify; raises CloudError."""
    server = urlsplit(url)
    text = getproxies().get(server.scheme, "").strip()
    if not text or server.hostname in LOCALHOST or proxy_bypass(server.netloc):
        return {}
    proxy = urlsplit(_checked(text if "://" in text else f"http://{text}", f"{server.scheme}_proxy", account=True))
    if proxy.scheme != "http":
        raise CloudError(f"{server.scheme}_proxy: must begin with http://")
    account = {"proxy_username": unquote(proxy.username or ""), "proxy_password": unquote(proxy.password or "")}
    return {"proxy_host": proxy.hostname, "proxy_port": proxy.port or 80, **(account if proxy.username else {})}


def tls(environment, name) -> ssl.SSLContext:
    """A context that verifies host name and certificate chain, with the CA file in the variable `name` if it is set."""
    try:
        return ssl.create_default_context(cafile=environment.get(name))
    except OSError as error:
        raise CloudError(f"{name}: {environment[name]}: {error}") from None


def cleaned(message, keys) -> str:
    """The message in one short line, without keys: a server's answer may repeat what it was sent."""
    for secret in filter(None, keys):
        message = message.replace(secret, "***")
    message = re.sub(r"(Signature=|Credential=)[^\s,&]+", r"\1***", " ".join(message.split()))
    return message if len(message) < 400 else f"{message[:400]} ..."


def _checked(url, name, account=False):
    """The URL, its scheme in lower case; CloudError if it is not a server's. account: allow user name and password."""
    url = url if "://" in url else f"https://{url}"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.port != 0 and (account or "@" not in parts.netloc)
        valid = valid and parts.hostname and parts.hostname.encode("idna")
    except ValueError:
        valid = False
    if not valid:  # not quoted, because it may contain a password
        raise CloudError(f"{name}: must be a URL such as https://HOST or https://HOST:PORT")
    return parts.geturl()


def _valid_in_headers(name, value):
    """The value, None if empty. CloudError if it would break a header: http.client would quote it."""
    if value and not re.fullmatch("[!-~]+", value):
        raise CloudError(f"{name}: contains a space, a line break or a character that is not ASCII")
    return value or None


def _file():
    """The section [basic] of the SDKs' file; empty if there is none."""
    file = configparser.ConfigParser(interpolation=None)
    try:
        file.read_string(Path(FILE).expanduser().read_text(encoding="utf-8-sig"))
    except (FileNotFoundError, RuntimeError):  # RuntimeError: the user has no home directory
        return {}
    except OSError as error:
        raise CloudError(f"{FILE}: cannot be read ({error.strerror})") from None
    except (configparser.Error, UnicodeDecodeError):
        raise CloudError(f"{FILE}: not an INI file") from None  # the parser's message would quote it
    return dict(file["basic"]) if file.has_section("basic") else {}
