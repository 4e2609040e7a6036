"""Four-letter words: what a server tells anyone about itself on a plain connection, without a session.

Knows the words whose answers are lists of names and values, and how a server says that it will not answer.
"""

from __future__ import annotations

import asyncio
import re
from ssl import SSLContext
from typing import Final, Literal, TypeAlias, overload

from zkwire.errors import UnimplementedError, ZooKeeperError
from zkwire.session import hosts

_Metrics: TypeAlias = dict[str, int | float | str]

_INT: Final = re.compile(r"-?[0-9]+")
_FLOAT: Final = re.compile(r"-?[0-9]+\.[0-9]+(E-?[0-9]+)?")
_NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests"
_NOT_ALLOWED: Final = "is not executed because it is not in the whitelist"
_MAY_BE_EMPTY: Final = "hash"  # one line per digest taken so far


@overload
async def four_letter_word(
    host: str, word: Literal["mntr", "conf"], *, within: float = ..., ssl: SSLContext | bool | None = ...
) -> _Metrics: ...


@overload
async def four_letter_word(
    host: str, word: Literal["envi"], *, within: float = ..., ssl: SSLContext | bool | None = ...
) -> dict[str, str]: ...


@overload
async def four_letter_word(
    host: str,
    word: Literal["ruok", "isro", "srvr", "stat", "cons", "dump", "dirs", "wchs", "wchc", "wchp", "crst", "srst"],
    *,
    within: float = ...,
    ssl: SSLContext | bool | None = ...,
) -> str: ...


@overload
async def four_letter_word(
    host: str, word: str, *, within: float = ..., ssl: SSLContext | bool | None = ...
) -> str | _Metrics | dict[str, str]: ...


async def four_letter_word(
    host: str, word: str, *, within: float = 5.0, ssl: SSLContext | bool | None = None
) -> str | _Metrics | dict[str, str]:
    """Ask one server one of its four-letter words, on a connection of its own, and return the answer.

        metrics = await zkwire.four_letter_word("zk1:2181", "mntr")
        metrics["zk_server_state"], metrics["zk_outstanding_requests"]      # "leader", 0

    Arguments: `host`, one server as "host[:port]", port 2181 unless named; `word`, such as "ruok"; `within`, in
    seconds, for all of it; `ssl`, an SSLContext, or True for the system's default one, where the port is for TLS.
    Returns, for "mntr" and "conf", a dict of names to numbers where a value is one, and to text; for "envi" a dict of
    names to text; names are those that the server sends. For every other word the text: "imok" for "ruok", "rw" or
    "ro" for "isro", lines meant for people for the rest, "srvr" and "stat" among them (what they tell, "mntr" tells).
    Raises: ValueError and TypeError at once for bad arguments; UnimplementedError when the server has no such word or
    its whitelist (`4lw.commands.whitelist`; from 3.5.3 on it holds only "srvr" unless told otherwise) leaves it out;
    ZooKeeperError when the server runs but does not serve, for want of a quorum; OSError when it cannot be reached,
    TimeoutError among them when `within` is over. A "ruok" is answered by a server that does not serve, too.
    Cancellation: closes the connection.
    """
    address = _only_address(host)
    if not isinstance(word, str):
        raise TypeError(f"a four-letter word is a str, not {type(word).__name__}: {word!r}")
    if re.fullmatch("[a-z]{4}", word) is None:
        raise ValueError(f"{word!r} is not a word of four small letters, such as 'mntr'")
    if word == "stmk":
        raise ValueError("'stmk' is sent with a trace mask, which zkwire does not do")
    limit = asyncio.timeout(within)
    try:
        async with limit:
            answer = await _ask(address, word, ssl or None)
    except TimeoutError as error:
        if not limit.expired():
            raise
        hint = "" if ssl else "; one that waits for TLS is silent, too: see ssl="
        raise TimeoutError(f"{word}: no answer from {address} within {within:g} s{hint}") from error
    _refuse(answer, word, address)
    if word == "envi":
        return dict(_pairs(answer, "="))
    if word in ("mntr", "conf"):
        return {name: _value(text) for name, text in _pairs(answer, "\t" if word == "mntr" else "=")}
    return answer


def _only_address(host: str) -> hosts.Address:
    addresses, chroot = hosts.parse(host)
    if len(addresses) != 1 or chroot:
        raise ValueError(f"{host!r} is not one server, 'host:port': each is asked for itself, and knows no chroot")
    return addresses[0]


async def _ask(address: hosts.Address, word: str, ssl: SSLContext | bool | None) -> str:
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=ssl)
    try:
        writer.write(word.encode())
        return (await reader.read()).decode(errors="replace")
    finally:
        writer.transport.abort()  # nothing is left to send, and nobody to wait for


def _refuse(answer: str, word: str, address: hosts.Address) -> None:
    """Raise what an answer means that is none."""
    if answer.startswith(_NOT_SERVING) or (word, answer) == ("isro", "null"):
        raise ZooKeeperError(f"{word}: {address} runs but serves nobody now: it is starting, or has no quorum")
    allowed = _NOT_ALLOWED not in answer
    if allowed and (answer or word == _MAY_BE_EMPTY):
        return
    error = UnimplementedError(UnimplementedError.code, operation=word, server=str(address))
    error.hint = (
        "it closed the connection without an answer: its version has no such word"
        if allowed
        else "add the word to 4lw.commands.whitelist in the server's configuration"
    )
    raise error


def _pairs(answer: str, separator: str) -> list[tuple[str, str]]:
    """The names and values; a heading is a line without a separator."""
    parts = [line.partition(separator) for line in answer.splitlines()]
    return [(name, value) for name, separated, value in parts if separated]


def _value(text: str) -> int | float | str:
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
