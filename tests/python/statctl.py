"""Prints the daemon's nine figures as JSON, as the reference's `statctl` does: exit 0, or 1 with a message."""

import argparse
import json
import sys

from kvd_v1 import SOCKET_DEFAULT, Client, KvdError


def main():
    """Connects (arena and all), asks once, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", default=SOCKET_DEFAULT)
    parser.add_argument("--client-id", default="statctl")
    arguments = parser.parse_args()
    try:
        with Client(arguments.socket, arguments.client_id) as client:
            figures = client.stats()
    except (OSError, KvdError, ValueError) as trouble:
        print(f"statctl: {arguments.socket}: {trouble}", file=sys.stderr)
        return 1
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
