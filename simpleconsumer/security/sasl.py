"""How a client authenticates by SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, token by token.

Source: RFC 4616, RFC 5802, RFC 7628; Kafka's PlainSaslServer, ScramSaslClient, OAuthBearerSaslClient (4.3.1).

Reads `sasl.jaas.config`, in which Java users have name and password of PLAIN and SCRAM.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";

Source: Kafka 4.3.1, JaasConfig: words, or texts in quotation marks with backslashes, `=`, and a semicolon at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from simpleconsumer.security.secret import NOT_UTF8, WrongSecuritySetting, is_utf8, secret

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism of SCRAM -> name of its hash."""
MECHANISMS: Final = ("PLAIN", *HASHES, "OAUTHBEARER")
_NONCE_BYTES: Final = 24
_SEPARATOR = "\x01"
Conversation = Generator[bytes, bytes, None]
"""Yields the client's tokens, is sent those of the broker, and ends when the broker has to say nothing more."""


class SaslRefused(Exception):  # noqa: N818 - says what happened
    """The conversation has failed; the text says why, without secrets."""


class SaslLost(SaslRefused):
    """The connection was lost while the broker had a token: a refusal before Kafka 1.0, or a broker that has died."""


@dataclass(frozen=True)
class Sasl:
    """Who the client is.

    Attributes:
        mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        username: For PLAIN and SCRAM.
        password: For PLAIN and SCRAM.
        token: For OAUTHBEARER, returns the token for a new authentication. It is called on the thread of the request,
            whose deadline it uses up. One that is a function of a module can be sent to other processes.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: Callable[[], str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not is_utf8(self.username):
            raise WrongSecuritySetting("sasl.username", NOT_UTF8)
        object.__setattr__(self, "password", secret("sasl.password", self.password))


def conversation(sasl: Sasl) -> Conversation:
    """Return a new conversation.

    Raises (from the generator):
        SaslRefused: The broker refuses the client, or the client the broker.
    """
    if sasl.mechanism == "PLAIN":
        return _plain(sasl)
    if sasl.mechanism in HASHES:
        return _scram(sasl)
    return _bearer(sasl)


def _plain(sasl: Sasl) -> Conversation:
    yield f"\0{sasl.username}\0{sasl.password}".encode()


def _scram(sasl: Sasl) -> Conversation:
    import secrets  # here, as they load the hash functions of OpenSSL

    from simpleconsumer.security.scram import ScramClient, ScramRefused

    nonce = secrets.token_urlsafe(_NONCE_BYTES)
    client = ScramClient(HASHES[sasl.mechanism], sasl.username, sasl.password, nonce)
    try:
        server_first = yield client.first()
        server_final = yield client.final(server_first)
        client.check(server_final)
    except ScramRefused as error:
        raise SaslRefused(str(error)) from None


def _bearer(sasl: Sasl) -> Conversation:
    token = _token(sasl)
    answer = yield f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{_SEPARATOR}".encode()
    if answer:
        # RFC 7628 has the client say one thing more, upon which the broker says less than it has said here.
        raise SaslRefused(f"the broker rejects the token: {_reason(answer)}")


def _token(sasl: Sasl) -> str:
    if sasl.token is None:
        raise SaslRefused("no callback is given that returns a token")
    try:
        token = sasl.token()
    except WrongSecuritySetting as error:
        raise SaslRefused(str(error)) from error
    except Exception as error:  # noqa: BLE001 - its text may hold a secret, also where it is only the cause
        raise SaslRefused(f"the callback that returns a token has failed: {type(error).__name__}") from None
    if not isinstance(token, str) or not token or _SEPARATOR in token or not is_utf8(token):
        raise SaslRefused(f"the callback for tokens returned a {type(token).__name__} that is not a token")
    return token


def _reason(answer: bytes) -> str:
    """The broker's words: `status` of its JSON text."""
    try:
        return str(json.loads(answer)["status"])[:200]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "it gives no reason"


_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""", re.DOTALL)
_FLAGS = ("required", "requisite", "sufficient", "optional")


class Sign(Enum):
    """The characters between words."""

    EQUALS = "="
    END = ";"


class JaasEntry(NamedTuple):
    """One login module.

    Attributes:
        module: Name of its class, without the package.
        options: Its options.
    """

    module: str
    options: dict[str, str]


def parse_jaas(text: str) -> JaasEntry:
    """Return the login module of a text.

    Raises:
        ValueError: It does not follow the grammar, or has more than one module; says where, without values.
    """
    tokens = _tokens(text)
    words = [each for each in tokens if isinstance(each, str)]
    if len(tokens) < 3 or len(words) < 2 or tokens[:2] != words[:2] or words[1].lower() not in _FLAGS:
        raise ValueError("it must start with the class of a login module and 'required'")
    if tokens[-1] is not Sign.END:
        raise ValueError("it must end with a semicolon")
    if Sign.END in tokens[:-1]:
        raise ValueError("it has more than one login module")
    rest = tokens[2:-1]
    if [each if isinstance(each, Sign) else "" for each in rest] != ["", Sign.EQUALS, ""] * (len(rest) // 3):
        raise ValueError(f"options must follow '{words[1]}', such as username=\"alice\"")
    return JaasEntry(words[0].rpartition(".")[2], dict(zip(words[2::2], words[3::2], strict=True)))


def _tokens(text: str) -> list[str | Sign]:
    found: list[str | Sign] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"character {at + 1} starts neither a word nor a closed text in quotation marks")
        double, single, sign, word = match.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            found.append(Sign(sign) if sign else word)
        at = match.end()
    return found
