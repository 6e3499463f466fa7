"""A loopback HTTP endpoint through which a program asks for a crash, or another change of its servers.

`POST /ACTION` does it and answers 200 once that is done: `kill-restart`, for example, ends the server with
SIGKILL, starts it again on the same ports and data directory, and is done once it serves. HTTP because every
language can send one request without another library.
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Control:
    """`actions` maps names to functions; `done` lists those that succeeded."""

    def __init__(self, actions):
        done = self.done = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                name = self.path.removeprefix("/")
                if name not in actions:
                    self.send_error(404)
                    return
                try:
                    actions[name]()
                    done.append(name)
                    status, body = 200, b"done\n"
                except Exception as error:  # the program must learn of any failure
                    status, body = 500, f"{error}\n".encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http.server_port}"
