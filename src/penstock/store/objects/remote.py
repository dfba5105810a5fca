"""A bucket of S3, Google Cloud Storage or Azure, through obstore.

Credentials, region and endpoint come from the variables that obstore reads: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL, GOOGLE_SERVICE_ACCOUNT,
AZURE_STORAGE_ACCOUNT_NAME and so on, or from the machine's role.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import from_url

from penstock.errors import ConfigError, PenstockError, StoreUnavailable, UsageError
from penstock.store.objects.bucket import Bucket, Found, Item, Result

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

_AT_ONCE = 8
_PROBE = "probe"
# A request gives up after three tries of two seconds; a write that timed out is not tried again by obstore.
_TRY = timedelta(seconds=2)
_RETRIES: RetryConfig = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=5),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 2},
}
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
_PERMISSIONS = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")
_STATUS = re.compile(r"status code: (\d{3})")


class RemoteBucket(Bucket):
    """Objects below the prefix of ``url``."""

    _process: ClassVar[int | None] = None
    """The process to which obstore's threads belong, which the first request starts."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._proven = False
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="penstock-objects")
        try:
            self._store = from_url(url, client_options=_client_options(), retry_config=_RETRIES)
        except (BaseError, ValueError) as error:
            raise ConfigError(f"cannot open {url}: {_first_line(error)}", hint=_CHECK) from error

    def create(self, path: str, body: bytes) -> None:
        if not self._proven:
            self._prove()
        self._create(path, body)

    def _create(self, path: str, body: bytes) -> None:
        with self._explained():
            try:
                obstore.put(self._store, path, body, mode="create", use_multipart=False)
            except AlreadyExistsError as error:
                raise FileExistsError(path) from error
            except FileNotFoundError as error:
                raise self._no_bucket() from error

    def _prove(self) -> None:
        """See that nothing can be created twice: a server that ignores the condition would lose writes."""
        for _ in range(2):
            try:
                self._create(_PROBE, b"created once, to see that it cannot be created again\n")
            except FileExistsError:
                self._proven = True
                return
        raise self._not_exclusive("it let us create the same object twice")

    def read(self, path: str) -> bytes | None:
        with self._explained():
            try:
                return bytes(obstore.get(self._store, path).bytes())
            except FileNotFoundError:
                return None

    def list(self, folder: str, after: str = "") -> Sequence[Found]:
        with self._explained():
            found = obstore.list(self._store, folder, offset=after or None, chunk_size=1000).collect()
            return [Found(each["path"], each["last_modified"].timestamp()) for each in found]

    def delete(self, paths: Iterable[str]) -> None:
        names = list(paths)
        with self._explained():
            try:
                obstore.delete(self._store, names)
            except FileNotFoundError:
                # Where objects are removed one by one, the first that is missing stops the others.
                for name in names:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, name)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Sequence[Result]:
        if len(items) < 2:
            return super().each(function, items)
        return list(self._threads.map(function, items))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        self._refuse_after_fork()
        try:
            yield
        except (BaseError, NotImplementedError) as error:
            raise self._explain(error) from error

    def _refuse_after_fork(self) -> None:
        """Obstore's threads do not survive a fork, and every request of a child would wait for ever."""
        process = os.getpid()
        if RemoteBucket._process is None:
            RemoteBucket._process = process
        elif RemoteBucket._process != process:
            raise UsageError(
                f"a forked process cannot use {self._url}: its parent used a bucket before",
                hint="start the process with subprocess, or with the multiprocessing method 'spawn'",
            )

    def _explain(self, error: Exception) -> PenstockError:
        # A failed listing has no type of its own, whatever the server answered.
        status = _STATUS.search(str(error))
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or (
            status and status[1] in ("401", "403")
        ):
            return ConfigError(f"{self._url} refuses our credentials: {_first_line(error)}", hint=_CHECK)
        if status and status[1] == "404":
            return self._no_bucket()
        if isinstance(error, NotSupportedError | NotImplementedError) or (status and status[1] == "501"):
            return self._not_exclusive(_first_line(error))
        return StoreUnavailable(f"{self._url} did not answer: {_first_line(error)}", hint="try again")

    def _not_exclusive(self, why: str) -> ConfigError:
        return ConfigError(
            f"{self._url} cannot create objects exclusively: {why}",
            hint="use a server with conditional writes (If-None-Match), etcd, or SQLite",
        )

    def _no_bucket(self) -> ConfigError:
        return ConfigError(
            f"there is no bucket for {self._url}", hint="create the bucket, or correct the store's URL"
        )


_CHECK = "check the URL and the variables AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, … of your provider"


def _client_options() -> ClientConfig:
    """Options of ours make obstore forget …_ALLOW_HTTP; an http:// endpoint needs no second permission."""
    allowed = any(os.environ.get(name, "").lower() in ("1", "true", "yes", "on") for name in _PERMISSIONS)
    plain = any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS)
    return {"timeout": _TRY, "connect_timeout": _TRY, "allow_http": allowed or plain}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
