#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the rate of one TCP stream: `goodput.py serve` prints the bytes received per second; `goodput.py HOST` sends to it for three seconds."""
import socket
import sys
import time

PORT = 5998

if sys.argv[1] == "serve":
    with socket.create_server(("", PORT)) as server:
        server.settimeout(20)
        stream, _ = server.accept()
        stream.settimeout(20)
        buffer = bytearray(1 << 20)
        begin = time.monotonic()
        total = 0
        while True:
            got = stream.recv_into(buffer)
            if not got:
                break
            total += got
        print(total / (time.monotonic() - begin))
else:
    with socket.create_connection((sys.argv[1], PORT), timeout=20) as stream:
        data = bytes(1 << 20)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            stream.sendall(data)
