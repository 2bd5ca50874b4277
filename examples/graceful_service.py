"""A service: a thread handles messages, an HTTP endpoint reports its health, SIGTERM ends it in order and in time.

    zkconsumer cluster up --zookeeper-port 2181 --topic clicks:4
    python examples/graceful_service.py --zookeeper 127.0.0.1:2181 --group service --topic clicks --port 8080
    curl -i http://127.0.0.1:8080/

The answer is the member's status: 200 while its partitions are safely its own, else 503. At SIGTERM or Ctrl-C the
message in hand may finish within `STOP_S`. Then it is committed, and other members continue with the next message.
Status 1 means that messages are delivered again: one failed or took too long, or ZooKeeper did not answer in time and
their positions are not stored. The end does not take longer in these cases.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

from zkconsumer import ConsumerConfig, ConsumerConnector, KafkaStream

STOP_S = 5.0
NAP_S = 0.2


def work(stream: KafkaStream, ends: SimpleQueue[str]) -> None:
    """Handle messages until the stream ends; when one fails, the service ends."""
    try:
        for message in stream:
            print(message.partition, message.offset, (message.value or b"").decode(), flush=True)
    finally:
        ends.put("worker")


def health_server(connector: ConsumerConnector, port: int) -> ThreadingHTTPServer:
    """A server that answers each GET with the status of the connector; it listens, and does not run yet."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = connector.status()
            # ZooKeeper has confirmed the session lately, and no message has been in hand for too long.
            age_s = status.lease_age_s
            is_well = age_s is not None and age_s < status.session_timeout_s and status.state != "out"
            body = status.to_json().encode()
            self.send_response(HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Log no requests of probes."""

    return ThreadingHTTPServer(("127.0.0.1", port), Health)


def main() -> None:
    parser = argparse.ArgumentParser(description="Handle the messages of a topic.")
    parser.add_argument("--zookeeper", required=True, help="host:port,host:port/chroot")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--port", type=int, default=8080, help="of the health check; 0 takes a free one")
    parser.add_argument("--longest-ms", type=int, default=60_000, help="a message that takes longer is somebody else's")
    options = parser.parse_args()

    ends: SimpleQueue[str] = SimpleQueue()  # the one queue that signal handlers may put into
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `&` in a script has it: Ctrl-C is for others
            signal.signal(number, lambda number, frame: ends.put("signal"))

    settings = {"auto_offset_reset": "smallest", "max_processing_interval_ms": options.longest_ms}
    connector = ConsumerConnector(ConsumerConfig(options.zookeeper, options.group, **settings))
    with connector:
        [stream] = connector.create_message_streams({options.topic: 1})[options.topic]
        server = health_server(connector, options.port)
        print(f"health: http://127.0.0.1:{server.server_port}/", file=sys.stderr)
        worker = threading.Thread(target=work, args=(stream, ends), daemon=True)  # daemons do not hold up the end
        for thread in (worker, threading.Thread(target=server.serve_forever, daemon=True)):
            thread.start()
        while ends.empty():  # short waits: Python handles a signal that came just before a wait when that wait ends
            time.sleep(NAP_S)
        reason = ends.get()
        unstored = connector.shutdown(STOP_S if reason == "signal" else 0)
        worker.join(1.0)
    if reason == "worker" or worker.is_alive():
        print("a message has failed or took too long; it comes again", file=sys.stderr, flush=True)
        os._exit(1)  # at once: an orderly end waits for what the thread holds, such as a standard output that is full
    if unstored:
        sys.exit(f"not stored, their last messages come again: {', '.join(map(str, unstored))}")


if __name__ == "__main__":
    main()
