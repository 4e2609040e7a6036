"""Settings that follow a node: every process sees a change within milliseconds, without a restart.

python settings.py zk1:2181,zk2:2181,zk3:2181
zkwire set /settings/shop '{"discount": 10}'    # in another shell
"""

import asyncio
import json
import sys
from typing import Any

import zkwire

PATH = "/settings/shop"


class Settings:
    """The newest valid value of the node at PATH, as a dict; empty until there is one."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def follow(self, zk: zkwire.Client) -> None:
        """Take in the value now, and each new one, without end."""
        async for node in zk.data(PATH):  # None while there is no node; goes on after reconnects and new sessions
            try:
                values = json.loads(node.data) if node is not None else {}
            except ValueError as error:
                print(f"{PATH} is no JSON, the former settings stay: {error}", flush=True)
                continue
            self.values = values
            print(f"settings: {values}", flush=True)


async def main(hosts: str) -> None:
    settings = Settings()
    async with zkwire.connect(hosts) as zk, asyncio.TaskGroup() as tasks:
        tasks.create_task(settings.follow(zk))
        while True:  # the work of the program, which reads the settings whenever it needs them
            await asyncio.sleep(1.0)
            settings.values.get("discount", 0)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except (TimeoutError, ConnectionError) as error:  # no server to begin with: a supervisor starts the program again
        sys.exit(f"ended: {error!r}")
