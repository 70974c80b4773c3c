#!/usr/bin/python3
"""An outer plugin in Python, with Debian's python3-grpcio and nothing else.

It reports the size of a file: at --soft bytes a condition and a taint, at --hard
bytes it names the pods that it was shown, by UID, at most as many as are asked for.
Copy it, and put your own measurement in the place of measure().

    plimsoll plugins test -- /usr/bin/python3 plugin.py --plugins.dir {dir} --file /tmp/queue

The messages are small enough to encode by hand, so that nothing is generated. With
grpcio-tools, evictionplugin.proto and the kubelet's api.proto do the same.
"""

import argparse
import os
import signal
import struct
import sys
from concurrent import futures

import grpc

NAME = "file-size"
MAX_QUESTION = 64 << 20  # bytes; the agent stays below 4 MiB, other hosts do not


# Protobuf by hand: varint, length-delimited and double fields.


def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field, n):
    return varint(field << 3) + varint(n)


def real(field, x):
    return varint(field << 3 | 1) + struct.pack("<d", x)


def data(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def read_varint(message, at):
    n = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("no protobuf message")
        byte = message[at]
        n |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return n, at


def fields(message):
    """All fields of a message, with numbers that it knows and others."""
    at, found = 0, {}
    while at < len(message):
        key, at = read_varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = read_varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = message[at : at + size], at + size
        elif kind == 2:
            size, at = read_varint(message, at)
            value, at = message[at : at + size], at + size
        else:
            raise ValueError("no protobuf message")
        if at > len(message):
            raise ValueError("no protobuf message")
        found.setdefault(key >> 3, []).append(value)
    return found


def identity(pod):
    """A pod with nothing but its name, namespace and UID; none without UID."""
    for metadata in fields(pod).get(1, []):
        known = fields(metadata)
        if known.get(5, [b""])[0]:
            return data(1, b"".join(data(n, known[n][0]) for n in (1, 3, 5) if n in known))
    return None


class Plugin:
    def __init__(self, path, soft, hard):
        self.path, self.soft, self.hard = path, soft, hard

    def measure(self):
        """Bytes of the file. Its exception becomes an error, which is not zero."""
        return os.stat(self.path).st_size

    def threshold_met(self, request, context):
        fields(request)  # a message that is none is an error
        try:
            size = self.measure()
        except OSError as e:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"cannot measure: {e}")
        level = 2 if size >= self.hard else 1 if size >= self.soft else 0
        condition = data(2, "NoSchedule" if level == 2 else "PreferNoSchedule") + data(3, "FileTooLarge") + number(4, level > 0)
        return real(1, self.hard if level == 2 else self.soft) + real(2, size) + number(3, 1) + number(4, level) + data(7, condition)

    def get_top_eviction_pods(self, request, context):
        asked = fields(request)
        most = asked.get(2, [0])[-1]
        named = [pod for pod in map(identity, asked.get(1, [])) if pod]
        return b"".join(data(1, pod) for pod in named[:most])

    def get_evict_pods(self, request, context):
        fields(request)
        return b""

    def get_info(self, request, context):
        return data(1, "EvictionPlugin") + data(2, NAME) + data(4, "v1alpha1")

    def notify_registration_status(self, request, context):
        status = fields(request)
        registered = status.get(1, [0])[-1]
        print("registered" if registered else f"refused: {status.get(2)}", file=sys.stderr)
        return b""


def handlers(methods):
    # Without serializers a message is its bytes.
    return {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}


def serve(plugin, directory):
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=4),
        options=[("grpc.max_receive_message_length", MAX_QUESTION)],
    )
    server.add_generic_rpc_handlers((
        grpc.method_handlers_generic_handler("pluginregistration.Registration", handlers({
            "GetInfo": plugin.get_info,
            "NotifyRegistrationStatus": plugin.notify_registration_status,
        })),
        grpc.method_handlers_generic_handler("evictionplugin.v1alpha1.EvictionPlugin", handlers({
            "ThresholdMet": plugin.threshold_met,
            "GetTopEvictionPods": plugin.get_top_eviction_pods,
            "GetEvictPods": plugin.get_evict_pods,
        })),
    ))
    # A socket that is found before it listens costs a retry: bind a hidden name,
    # listen, rename. What a killed instance left is replaced by the rename.
    path = os.path.join(directory, NAME + ".sock")
    hidden = os.path.join(directory, "." + NAME + ".sock")
    if os.path.exists(hidden):
        os.remove(hidden)
    if server.add_insecure_port("unix:" + hidden) == 0:
        sys.exit(f"cannot listen in {directory}")
    server.start()
    os.rename(hidden, path)
    return server, path


def main():
    p = argparse.ArgumentParser(description="an outer plugin that reports the size of a file")
    p.add_argument("--plugins.dir", dest="directory", default="/var/lib/plimsoll/plugins")
    p.add_argument("--file", required=True)
    p.add_argument("--soft", type=float, default=1 << 20)
    p.add_argument("--hard", type=float, default=1 << 30)
    o = p.parse_args()
    # Blocked before the server starts its threads, so that this one receives them.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    server, path = serve(Plugin(o.file, o.soft, o.hard), o.directory)
    signal.sigwait(ends)
    os.remove(path)
    server.stop(grace=2).wait()


if __name__ == "__main__":
    main()
