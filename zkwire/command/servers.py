"""The commands on servers: ping, srvr, mntr."""

import argparse
from typing import Any

import zkwire
from zkwire import Client
from zkwire.command import output
from zkwire.command.options import tls_of


async def ping(zk: Client, options: argparse.Namespace) -> None:
    """Print the round trips of requests to the server, in milliseconds."""
    for _ in range(options.number or 1):
        taken = await zk.ping()
        fields = {"server": zk.server, "milliseconds": round(1000 * taken, 3)}
        output.say(output.as_json(fields) if options.json else f"{zk.server} {1000 * taken:.3f} ms")


async def whoami(zk: Client, options: argparse.Namespace) -> None:
    """Print the identities of this client, one a line."""
    found = [f"{each.scheme}:{each.user}" for each in sorted(await zk.whoami())]
    output.say(*([output.as_json(found)] if options.json else found))


async def config(zk: Client, options: argparse.Namespace) -> None:
    """Print the ensemble's configuration, as its servers have it."""
    found = await zk.get_config()
    if options.json:
        output.say(output.as_json({"version": found.version, "members": found.members}))
    else:
        output.write_data(found.data)


async def ask(options: argparse.Namespace) -> None:
    """Ask every server for the four letter word that the command is called by."""
    failures: list[str] = []
    kind: type[Exception] = zkwire.ZooKeeperError
    for server in options.hosts.partition("/")[0].split(","):
        try:
            tls = tls_of(options)
            answer: Any = await zkwire.four_letter_word(server, options.name, within=options.to_connect, ssl=tls)
        except (OSError, zkwire.ZooKeeperError) as error:
            is_lost = isinstance(error, OSError)
            kind = ConnectionError if is_lost else kind
            failures.append(f"{server}: {error}" if is_lost else str(error))  # which names the server
            continue
        is_table = isinstance(answer, dict)
        if options.json:
            output.say(output.as_json({"server": server, **(answer if is_table else {"answer": answer})}))
        else:
            lines = [f"{name} = {value}" for name, value in answer.items()] if is_table else answer.rstrip().split("\n")
            output.say(server, *(f"  {line}" for line in lines))
    if failures:
        raise kind("; ".join(failures))
