"""A tree of nodes at the server, and as a cache shows it."""

from recipes import Cache
from tests.support.recipes import until
from zkwire import Client, Node, NoNodeError


async def tree(zk: Client, path: str) -> dict[str, Node]:
    """Read the tree at the server, node by node."""
    try:
        found = {path: await zk.get(path)}
        names = await zk.get_children(path)
    except NoNodeError:
        return {}
    for name in names:
        found |= await tree(zk, f"{path.rstrip('/')}/{name}")
    return found


def shown(cache: Cache, path: str | None = None) -> dict[str, Node]:
    """Return what a cache shows, found from its children."""
    path = path or cache.path
    node = cache.get(path)
    if node is None:
        assert cache.children(path) is None
        return {}
    found = {path: node}
    for name in cache.children(path) or ():
        found |= shown(cache, f"{path.rstrip('/')}/{name}")
    return found


async def until_equal(cache: Cache, zk: Client, limit: float = 15.0, *, data: bool = True) -> None:
    """Wait until the cache shows exactly the tree at the server, with or without the nodes' data."""
    there: dict[str, Node] = {}

    async def is_equal() -> bool:
        nonlocal there
        there = {
            path: Node(node.data if data else b"", node.stat) for path, node in (await tree(zk, cache.path)).items()
        }
        return cache.is_current and shown(cache) == there

    await until(is_equal, limit=limit, what=lambda: f"{len(shown(cache))} nodes are shown, {len(there)} exist")
