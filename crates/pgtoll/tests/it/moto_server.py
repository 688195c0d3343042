"""A server that speaks S3 and keeps objects in memory (moto), with a bucket, on a port of its own, which it
prints. With a file as argument, a certificate and its key, HAProxy is in front of it and speaks TLS. Both end
with the standard input, so with whoever started it.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

PROXY = """
defaults
  mode http
  timeout connect 10s
  timeout client 60s
  timeout server 60s
listen store
  bind fd@{socket} ssl crt {certificate}
  server moto 127.0.0.1:{port}
"""


def start_proxy(certificate, port):
    """HAProxy before the server at this port, and its own port."""
    listening = socket.create_server(("127.0.0.1", 0))
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(PROXY.format(socket=listening.fileno(), certificate=certificate, port=port))
        file.flush()
        command = ["/usr/sbin/haproxy", "-db", "-f", file.name]
        # It says so when it has read its file and started its worker.
        proxy = subprocess.Popen(
            [*command, "-W"], pass_fds=[listening.fileno()], stderr=subprocess.PIPE, text=True
        )
        for line in proxy.stderr:
            if "Loading success" in line:
                break
        else:
            sys.exit("HAProxy did not start")
    threading.Thread(target=proxy.stderr.read, daemon=True).start()
    return proxy, listening.getsockname()[1]


server = make_server(
    "127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True
)
threading.Thread(target=server.serve_forever, daemon=True).start()
bucket = f"http://127.0.0.1:{server.server_port}/backups"
urllib.request.urlopen(urllib.request.Request(bucket, method="PUT")).close()
proxy, port = None, server.server_port
if len(sys.argv) > 1:
    proxy, port = start_proxy(sys.argv[1], port)
print(port, flush=True)
sys.stdin.read()
if proxy:
    proxy.terminate()
    proxy.wait()
os._exit(0)
