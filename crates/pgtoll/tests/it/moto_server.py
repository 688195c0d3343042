"""A server that speaks S3 and keeps objects in memory (moto), on a port of its own, which it prints. With a
certificate and a key as arguments it is behind TLS. It ends with its standard input, so with whoever started it.
"""

import os
import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


def end_with_input():
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=end_with_input, daemon=True).start()
certificate = tuple(sys.argv[1:3]) or None
application = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, application, threaded=True, ssl_context=certificate)
print(server.server_port, flush=True)
server.serve_forever()
