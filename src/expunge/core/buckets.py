"""Buckets that speak S3, reached with obstore: one way to name them, one line for every error.

Credentials and addresses come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …), as `obstore` reads
them. None of them is written down.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from expunge.core.errors import ExpungeError, InputError, MissingExtraError, StoreError

NEEDS_LAKE: Final = "buckets and records outside the folder need more: pip install 'expunge[lake]'"
_BUCKET: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()=/-]{0,500})?")
_PATIENCE: Final = timedelta(seconds=60)  # for one answer
_RETRIES, _LONGEST = 6, timedelta(minutes=3)


def open_bucket(url: str) -> Any:
    """Reach a bucket, or what is under a prefix in it. Nothing is read yet.

    Parameters
    ----------
    url
        `s3://bucket/prefix`.

    Returns
    -------
    obstore.store.S3Store
        What the functions of obstore take.

    Raises
    ------
    InputError
        If the URL is of another form.
    MissingExtraError
        If obstore is not installed.
    """
    if not _BUCKET.fullmatch(url) or "//" in url[5:]:
        raise InputError(
            f"{url!r} is not of the form s3://bucket/prefix, with the bucket's name in 3 to 63 small letters, "
            "digits, dots and hyphens"
        )
    try:
        import obstore  # noqa: F401
        from obstore.store import from_url
    except ImportError:
        raise MissingExtraError(NEEDS_LAKE) from None
    address = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
    with explain_bucket(url):
        return from_url(
            url,
            client_options={"timeout": _PATIENCE, "allow_http": address.startswith("http://")},
            retry_config={"max_retries": _RETRIES, "retry_timeout": _LONGEST},
        )


@contextmanager
def explain_bucket(url: str) -> Iterator[None]:
    """Turn any error of a bucket into one line that names it.

    Parameters
    ----------
    url
        The bucket.

    Raises
    ------
    StoreError
        If it cannot be reached, or refuses something.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except ExpungeError:  # some are also a ValueError
        raise
    except (BaseError, OSError, ValueError) as error:
        told = re.split(r":? (?:<\?xml|Debug source)", " ".join(str(error).split()))[0]
        raise StoreError(f"{url}: {told:.300}; nothing was lost") from error
