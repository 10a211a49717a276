"""A door with TLS in front of a server that has none: tls_door.py CERT KEY PORT. Says at which port it is, and serves until it is killed."""

import socket
import ssl
import sys
import threading


def carry(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for side in (source, sink):
        try:
            side.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(near: socket.socket, context: ssl.SSLContext, port: int) -> None:
    try:
        near = context.wrap_socket(near, server_side=True)
        far = socket.create_connection(("127.0.0.1", port))
    except OSError:
        near.close()
        return
    threading.Thread(target=carry, args=(far, near), daemon=True).start()
    carry(near, far)


def main() -> None:
    certificate, key, port = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        near, _ = listener.accept()
        threading.Thread(target=serve, args=(near, context, int(port)), daemon=True).start()


if __name__ == "__main__":
    main()
