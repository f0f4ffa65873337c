#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What our readers take is what python3's json takes, with equal values: random documents, random damage, hard numbers.

    json_against_python.py strict JSON_ECHO [DOCUMENTS [SEED]]          base/json/json.h
    json_against_python.py python JSON_ECHO [DOCUMENTS [SEED]]          base/json/python_json.h, which also prints as python3 does

Strict: UTF-8, no NaN or Infinity, no number that overflows, no integer beyond 2^53, no name twice, no U+0000, no half of a surrogate pair.
What only base/json/json.h refuses (a number of more than 63 bytes, more than 128 levels) it must refuse by that name.
"""
import json
import math
import random
import struct
import subprocess
import sys
import tempfile

is_strict, echo = sys.argv[1] == 'strict', sys.argv[2]
documents = int(sys.argv[3]) if len(sys.argv) > 3 else 12000
seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 30)
rng = random.Random(seed)
CHARS = ['a', 'B', '"', '\\', '/', '\n', '\t', '\x01', '\x7f', '\x80', 'é', '日', '🚀', '\ue000', '\uffff', ' ']
ODD = ['\x00', '\ud800', '\udfff']
PIECES = [b'{', b'}', b'[', b']', b'"', b',', b':', b'0', b'7', b'.', b'e', b'E', b'+', b'-', b'\\', b'\\u', b'\\u0000', b'\\ud83d', b'\\ude80', b' ',
          b't', b'true', b'null', b'NaN', b'Infinity', b'1e400', b'1e308', b'007', b'1.', b'.5', b'9007199254740992', b'9007199254740993', b'\x00', b'\v',
          b'\f', b'\x80', b'\xc3\xa9', b'\xed\xa0\x80', b'\xff', b'\xef\xbb\xbf', b'\xe2\x80\xa8', b'{}', b'[]', b'"a":1,', b'0' * 64, b'[' * 130]

HARD = [b'1.', b'-', b'+5', b'.5', b'0x10', b'1 2', b'True', b'nan', b"{'a':1}", b'[1,]', b'{"a":1,}', b'{,}', b'"\\x"', b'"\\u"', b'"a', b'[', b'{', b'1e', b'1e+', b'-Inf',
        b'--1', b'"\\', b'nul', b'\f1', b'\xed\xa0\x80', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'007', b'']


class Refused(ValueError):
    pass


def text():
    return ''.join(rng.choice(ODD if rng.randrange(100 if is_strict else 6) == 0 else CHARS) for _ in range(rng.randrange(6)))


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


def whole():
    if not is_strict:
        return rng.randrange(-10 ** rng.randrange(1, 40), 10 ** rng.randrange(1, 40))
    if rng.randrange(20) == 0:
        return rng.choice((1, -1)) * ((1 << rng.choice((31, 32, 53, 63, 64))) + rng.randrange(-2, 3))
    return rng.randrange(-10 ** rng.randrange(1, 16), 10 ** rng.randrange(1, 16))


def value(depth):
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return whole()
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
        kind = rng.randrange(5)
        if kind == 0 and at < len(data):
            del data[at]
        elif kind == 1:
            data[at:at] = rng.choice(PIECES)
        elif kind == 2:
            end = min(len(data), at + rng.randrange(12))
            data[end:end] = data[at:end]
        elif kind == 3:
            data[at:at + rng.randrange(6)] = rng.choice(PIECES)
        elif at < len(data):
            data[at] = rng.randrange(256)
    return bytes(data)


def document():
    style = rng.choice((dict(), dict(indent=1), dict(separators=(',', ':'))))
    data = json.dumps(value(0), ensure_ascii=True, **style).encode()
    if rng.randrange(4) == 0:
        data = data.decode().replace('\\u00e9', 'é').replace('\\u65e5', '日').replace('\\ud83d\\ude80', '🚀').encode()
    return damage(data) if rng.randrange(2) == 0 else data


def strict_text(string):
    if '\x00' in string or any('\ud800' <= char <= '\udfff' for char in string):
        raise Refused(string)
    return string


def strict_int(lexeme):
    if len(lexeme) > 17 or abs(int(lexeme)) > 1 << 53:
        raise Refused(lexeme)
    return int(lexeme)


def strict_float(lexeme):
    if math.isinf(float(lexeme)):
        raise Refused(lexeme)
    return float(lexeme)


def strict_object(pairs):
    if len(dict(pairs)) != len(pairs):
        raise Refused('a name twice')
    return {strict_text(name): member for name, member in pairs}


def strict_constant(name):
    raise Refused(name)


decoder = json.JSONDecoder(parse_int=strict_int, parse_float=strict_float, parse_constant=strict_constant, object_pairs_hook=strict_object)


def check_strings(at):
    if isinstance(at, str):
        strict_text(at)
    elif isinstance(at, dict):
        for member in at.values():
            check_strings(member)
    elif isinstance(at, list):
        for item in at:
            check_strings(item)


def expected(data):
    found = decoder.decode(data.decode('utf-8'))
    check_strings(found)
    return found


def equal(left, right):
    """Numbers by their value, be they written 1 or 1.0; a float keeps the sign of 0."""
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return left is right
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return float(left) == float(right) and (left != 0 or isinstance(left, int) or math.copysign(1, left) == math.copysign(1, right))
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(map(equal, left.values(), right.values()))
    return type(left) is type(right) and left == right


def printed(data):
    try:
        return json.dumps(json.loads(data.decode('utf-8')), sort_keys=True, separators=(',', ':'))
    except ValueError:
        return '!'


def expectation(data, line):
    if not is_strict:
        return line == printed(data) or line.startswith('!') and printed(data) == '!', printed(data)
    try:
        wanted = expected(data)
    except (ValueError, RecursionError):
        return line.startswith('!'), 'refused'
    if line.startswith('!'):
        return line.endswith((' bytes in a number, found more', ' levels of nesting, found more')), wanted
    return equal(wanted, json.loads(line)), wanted


def compare(batch):
    with tempfile.TemporaryFile() as given:
        given.write(b''.join(data.hex().encode() + b'\n' for data in batch))
        given.seek(0)
        lines = subprocess.run([echo] if is_strict else [echo, 'python'], stdin=given, stdout=subprocess.PIPE, check=True).stdout.decode('ascii').split('\n')[:-1]
    assert len(lines) == len(batch), f'{len(lines)} answers for {len(batch)} documents, seed {seed}'
    for data, line in zip(batch, lines):
        right, wanted = expectation(data, line)
        assert right, f'seed {seed}\n  document {data!r}\n  python   {wanted!r}\n  ours     {line}'
    limits = sum(line.endswith(', found more') for line in lines)
    return sum(line.startswith('!') for line in lines) - limits, limits


done = refused = limited = 0
while done < documents:
    batch = [document() for _ in range(min(50000, documents - done))]
    if done == 0:
        batch[:2098 + len(HARD)] = [('%.17e' % math.ldexp(1.0, e)).encode() for e in range(-1074, 1024)] + HARD
    more, limits = compare(batch)
    done, refused, limited = done + len(batch), refused + more, limited + limits
print(f'{done} documents agree, {refused} of them refused as python3 does, {limited} over a bound; seed {seed}')
assert refused > done // 10 and done - refused > done // 10, 'the documents are too much alike'
