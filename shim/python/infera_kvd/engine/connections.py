"""Several connections to the daemon behind one client, so that loads of several threads go on at once."""

import queue


class Connections:
    """Lends each call of `load` a client that is free. `clients`: of the native kind, one a thread."""

    def __init__(self, clients):
        self._clients = list(clients)
        self._free = queue.SimpleQueue()
        for client in self._clients:
            self._free.put(client)
        # What the latest call met, or `None`.
        self.trouble = None

    def load(self, *arguments):
        """As the client's."""
        client = self._free.get()
        try:
            answer = client.load(*arguments)
            self.trouble = client.trouble
            return answer
        finally:
            self._free.put(client)

    def close(self):
        """Ends all connections."""
        for client in self._clients:
            client.close()
