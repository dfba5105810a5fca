"""The package confluent_kafka, and what its errors mean for trying again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.config import is_secret
from penstock.core.packages import need
from penstock.errors import ConfigError, InputError, PenstockError, TransientError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

ANSWER = 5.0
"""Seconds within which Kafka answers, or is taken to be away."""

FINAL = frozenset(
    {
        "_AUTHENTICATION",
        "_INVALID_ARG",
        "_SSL",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        "_UNSUPPORTED_FEATURE",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "INVALID_RECORD",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PART",
        "UNSUPPORTED_SASL_MECHANISM",
        "UNSUPPORTED_VERSION",
    }
)
"""Errors that do not pass by themselves; all others are tried again."""

_log = logging.getLogger(__name__)


def kafka() -> Any:
    """The package confluent_kafka."""
    need("kafka", "Kafka")
    import confluent_kafka

    return confluent_kafka


def consumer(settings: Mapping[str, object]) -> Consumer:
    made: Consumer = kafka().Consumer(dict(settings), logger=_log)
    return made


@contextmanager
def told(where: str, conf: Mapping[str, object]) -> Iterator[None]:
    """Errors of Kafka in the block, as ours."""
    package = kafka()
    try:
        yield
    except package.KafkaException as error:
        raise as_ours(error.args[0], where, conf) from None


def as_ours(error: KafkaError, where: str, conf: Mapping[str, object]) -> PenstockError:
    """An error of Kafka as what it means for trying again, without the secrets among the settings."""
    text = f"{where}: {error.name()}: {error.str()}"
    for name, value in conf.items():
        if is_secret(name) and value:
            text = text.replace(str(value), "***")
    if error.name() == "_INVALID_ARG":
        return ConfigError(text, hint="see the configuration properties of librdkafka")
    return InputError(text) if error.name() in FINAL else TransientError(text)
