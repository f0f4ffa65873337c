#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What base/json takes, refuses and prints is what python3's json does: random documents, random damage, hard floats.

Usage: json_against_python.py JSON_ECHO [SEED]
"""
import json
import math
import random
import struct
import subprocess
import sys

seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
rng = random.Random(seed)
CHARS = ['a', 'B', '"', '\\', '/', '\n', '\t', '\x00', '\x01', '\x7f', '\x80', 'é', '日', '🚀', '\ud800', '\udfff', '\ue000', '\uffff', ' ']


def text():
    return ''.join(rng.choice(CHARS) for _ in range(rng.randrange(6)))


def real():
    kind = rng.randrange(5)
    if kind == 0:
        return struct.unpack('<d', rng.randbytes(8))[0]
    if kind == 1:
        return math.ldexp(1.0, rng.randrange(-1074, 1024)) * rng.choice((1, -1))
    if kind == 2:
        return rng.randrange(10 ** 6) / 10 ** rng.randrange(1, 8)
    if kind == 3:
        return math.nextafter(math.ldexp(1.0, rng.randrange(-1022, 1023)), rng.choice((0.0, math.inf)))
    return float(rng.randrange(-10 ** 18, 10 ** 18))


def value(depth):
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.randrange(-10 ** rng.randrange(1, 40), 10 ** rng.randrange(1, 40))
    if kind in (2, 3):
        return real()
    if kind in (4, 5):
        return text()
    if kind in (6, 7):
        return {text(): value(depth + 1) for _ in range(rng.randrange(5))}
    return [value(depth + 1) for _ in range(rng.randrange(5))]


def damage(data):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(3)
        if kind == 0 and at < len(data):
            del data[at]
        elif kind == 1:
            data.insert(at, rng.choice(b'{}[]",:0123456789.eE+-\\u tfnNI\x00\x80\xc3\xa9\xff'))
        elif at < len(data):
            data[at] = rng.randrange(256)
    return bytes(data)


def expected(data):
    try:
        return json.dumps(json.loads(data.decode('utf-8')), sort_keys=True, separators=(',', ':'))
    except ValueError:
        return '!'


documents = [('%.17e' % math.ldexp(1.0, e)).encode() for e in range(-1074, 1024)]
for _ in range(12000):
    style = rng.choice((dict(), dict(indent=1), dict(separators=(',', ':'))))
    data = json.dumps(value(0), ensure_ascii=True, **style).encode()
    if rng.randrange(4) == 0:
        data = data.decode().replace('\\u00e9', 'é').replace('\\u65e5', '日').encode()
    documents.append(damage(data) if rng.randrange(3) == 0 else data)
result = subprocess.run([sys.argv[1]], input=b''.join(d.hex().encode() + b'\n' for d in documents), stdout=subprocess.PIPE, check=True)
lines = result.stdout.decode('ascii').split('\n')[:-1]
assert len(lines) == len(documents), f'{len(lines)} answers for {len(documents)} documents, seed {seed}'
for data, line in zip(documents, lines):
    assert line == expected(data), f'seed {seed}\n  document {data!r}\n  python   {expected(data)}\n  ours     {line}'
print(f'{len(documents)} documents agree, {lines.count("!")} of them refused; seed {seed}')
