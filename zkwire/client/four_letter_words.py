"""Four-letter words: commands by which a server reports about itself, on a plain connection without a session.

This module knows which words are answered by lists of names and values, and how a server refuses to answer.
"""

import asyncio
import re
from ssl import SSLContext
from typing import Any, Final, Literal, TypeAlias, overload

from zkwire.client.requester import check_number
from zkwire.errors import ProtocolError, UnimplementedError, ZooKeeperError
from zkwire.session import hosts, probe
from zkwire.session.opening import opener_of

_Metrics: TypeAlias = dict[str, int | float | str]
_TLS: TypeAlias = SSLContext | bool | None

# A Java long has at most 19 digits.  A longer number stays text: Python refuses to read one of thousands of digits.
_INT: Final = r"-?[0-9]{1,19}"
_FLOAT: Final = r"-?[0-9]{1,400}\.[0-9]{1,400}(E-?[0-9]{1,4})?"
# The words that are answered by pairs, and what separates them.
_PAIRS: Final = {"mntr": "\t", "conf": "=", "envi": "="}
_NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests"
_NOT_ALLOWED: Final = "is not executed because it is not in the whitelist"
_MiB: Final = 1 << 20
# Bytes of an answer.  To "mntr" a server has lines for each name below its root that was ever used, about 600 bytes.
_MOST: Final = {"mntr": 16 * _MiB, "conf": _MiB, "envi": _MiB}
_MOST_TEXT: Final = 64 * _MiB  # bytes of any other answer: "wchc" and "wchp" list every watch
_MAY_BE_EMPTY: Final = "hash"  # its answer has one line for each digest taken so far, and at first there is none


@overload
async def four_letter_word(
    host: str, word: Literal["mntr", "conf"], *, within: float = ..., ssl: _TLS = ...
) -> _Metrics: ...


@overload
async def four_letter_word(
    host: str, word: Literal["envi"], *, within: float = ..., ssl: _TLS = ...
) -> dict[str, str]: ...


@overload
async def four_letter_word(host: str, word: str, *, within: float = ..., ssl: _TLS = ...) -> str | Any: ...


async def four_letter_word(host: str, word: str, *, within: float = 5.0, ssl: _TLS = None) -> Any:
    """Send a four-letter word to one server, on a new connection, and return the answer.

    For example::

        metrics = await zkwire.four_letter_word("zk1:2181", "mntr")
        metrics["zk_server_state"], metrics["zk_outstanding_requests"]      # "leader", 0

    Args:
        host: One server as "host[:port]", with the default port 2181.
        word: The word, such as "ruok".
        within: The time limit for the whole call, in seconds.
        ssl: An SSLContext, or True for the system's default one, for a port that uses TLS.

    Returns:
        For "mntr" and "conf", a dict from the server's names to int, float or str; for "envi", a dict from names to
        str.  For every other word the text: "imok" for "ruok", "rw" or "ro" for "isro", and lines for human readers for
        the rest, such as "srvr" and "stat" ("mntr" contains the same facts).

    Raises:
        ValueError: At once, if an argument is bad.
        TypeError: At once, if an argument is bad.
        UnimplementedError: If the server does not have the word, or its whitelist does not
            (``4lw.commands.whitelist``; from 3.5.3 on its default is "srvr" alone).
        ZooKeeperError: If the server runs but does not serve because it has no quorum; "ruok" is answered even then.
        ProtocolError: If the answer has more than 16 MiB to "mntr", 1 MiB to "conf" or "envi", 64 MiB to another word.
        OSError: If the server cannot be reached.
        TimeoutError: If `within` has passed.

    Cancellation:
        It closes the connection.
    """
    addresses, chroot = hosts.parse(host)
    if len(addresses) != 1 or chroot:
        raise ValueError(f"{host!r} is not one server, 'host:port', without a chroot")
    (address,) = addresses
    if not isinstance(word, str):
        raise TypeError(f"a four-letter word must be a str, not {type(word).__name__}: {word!r}")
    if re.fullmatch("[a-z]{4}", word) is None:
        raise ValueError(f"{word!r} is not a word of four small letters, such as 'mntr'")
    if word == "stmk":
        raise ValueError("the word 'stmk' needs a trace mask, which zkwire cannot send")
    opener, most = opener_of(ssl), _MOST.get(word, _MOST_TEXT)
    check_number("within", within, int | float, "a number of seconds from 0 to a day", least=0, most=24 * 3600)
    limit = asyncio.timeout(within)
    try:
        async with limit:
            answer = await probe.ask(opener, address, word.encode(), most + 1)
    except TimeoutError as error:
        if not limit.expired():
            raise
        hint = "" if ssl else "; a server that waits for TLS is silent too: see ssl="
        raise TimeoutError(f"{word}: no answer from {address} within {within:g} s{hint}") from error
    if len(answer) > most:
        raise ProtocolError(f"{address} sent more than {most} bytes, which is not an answer", operation=word)
    return parse_answer(word, answer.decode(errors="replace"), address)


def parse_answer(word: str, answer: str, address: hosts.Address) -> str | _Metrics | dict[str, str]:
    """Return what `four_letter_word` returns for the text that the server at `address` has answered.

    Raises an error if the text means that the server refuses to answer.
    """
    if answer.startswith(_NOT_SERVING) or (word, answer) == ("isro", "null"):
        raise ZooKeeperError(f"{word}: {address} runs but does not serve now: it is starting, or has no quorum")
    hint = None
    if _NOT_ALLOWED in answer:
        hint = "add the word to 4lw.commands.whitelist in the server's configuration"
    elif not answer and word != _MAY_BE_EMPTY:  # an older server closes the connection at a word that it does not have
        hint = "it closed the connection without an answer: its version has no such word"
    if hint is not None:
        raise UnimplementedError(UnimplementedError.code, operation=word, server=str(address), hint=hint)
    if word not in _PAIRS:
        return answer
    parts = [line.partition(_PAIRS[word]) for line in answer.splitlines()]
    # Lines without a separator are headings.
    pairs = {name: value for name, separator, value in parts if separator}
    return pairs if word == "envi" else {name: _value(text) for name, text in pairs.items()}


def _value(text: str) -> int | float | str:
    if re.fullmatch(_INT, text):
        return int(text)
    return float(text) if re.fullmatch(_FLOAT, text) else text
