"""Deletes records from a folder on Ray, and says so line by line. The arguments are folder, ids and engine."""

from __future__ import annotations

import sys

import expunge
from expunge.core.errors import ExpungeError


def tell(count: int) -> None:
    print(f"trained {count}", flush=True)


if __name__ == "__main__":
    try:
        with expunge.open(sys.argv[1], executor=sys.argv[3]) as deployment:
            print(deployment.delete([*map(int, sys.argv[2].split(","))], apply=False).state, flush=True)
            deployment.apply(advance=tell)
            print("applied", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)
    except ExpungeError as error:
        print(f"error: {error}", flush=True)
        sys.exit(2)
