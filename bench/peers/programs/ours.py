"""zkwire's Lock, or the raw floor, as a program: `python -m bench.peers.programs.ours zkwire`."""

import sys

from bench.crew import CONTESTANTS
from bench.peers.worker import serve

if __name__ == "__main__":
    serve(sys.argv[1], CONTESTANTS[sys.argv[1]])
