"""The client of esdk-obs-python with what labkit changes in it. The SDK itself is imported when a client is made."""

import re
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime


class ErrorBody(Exception):
    """An <Error> in an answer whose status is 200."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def client(*arguments, **settings):
    """An ObsClient that follows no redirect, and tells what the SDK drops: Retry-After, Location, <Error> in a 200."""
    from obs import ObsClient

    class Client(ObsClient):
        def _is_redirect_exception(self, *_):
            return False  # keys and signature are for one server; a redirect comes out as an error

        def _rename_response_headers(self, headers):
            asked = headers.get("retry-after")
            kept = [("retry-after", str(seconds(asked, headers.get("date"))))] if asked else []
            kept += [("location", headers["location"])] if headers.get("location") else []
            return super()._rename_response_headers(headers) + kept

        def _prepare_body(self, methodName, responseData, isJson, headers):
            if b"<Error" in (responseData or b"")[:400]:
                found = {}
                for name in ("Code", "Message"):
                    match = re.search(rf"<{name}>([^<]*)</{name}>".encode(), responseData)
                    found[name] = match.group(1).decode("utf-8", "replace") if match else ""
                raise ErrorBody(found["Code"], found["Message"] or "an error, though the status is 200")
            return super()._prepare_body(methodName, responseData, isJson, headers)

    return Client(*arguments, **settings)


def seconds(asked, date):
    """A Retry-After in seconds, at most a minute; where it is a date, it counts from the answer's own, its Date."""
    try:
        if asked.isdecimal():
            wait = float(asked)
        else:
            now = parsedate_to_datetime(date) if date else datetime.now(timezone.utc)
            wait = (parsedate_to_datetime(asked) - now).total_seconds()
    except (TypeError, ValueError):  # no date, or one without its zone
        return 0.0
    return min(max(wait, 0.0), 60.0)
