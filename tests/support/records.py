# SPDX-License-Identifier: Apache-2.0
"""Writes TFRecord files of tf.Example, and RecordIO files of SageMaker's protocol buffers, without their libraries."""
import struct

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord(data):
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def recordio(data):
    return struct.pack("<II", 0xCED7230A, len(data)) + data + b"\0" * (-len(data) % 4)


def varint(number):
    number &= (1 << 64) - 1
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def field(number, data):
    """A field of bytes, or a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def _feature(value):
    if isinstance(value, bytes):
        return field(1, field(1, value))
    if all(isinstance(item, int) for item in value):
        return field(3, field(1, b"".join(map(varint, value))))
    return field(2, field(1, struct.pack(f"<{len(value)}f", *value)))


def example(features):
    """A tf.Example. A value is bytes, or a list of whole numbers or of floats."""
    return field(1, b"".join(field(1, field(1, name.encode()) + field(2, _feature(value))) for name, value in features.items()))


def protobuf(values, label):
    """aialgs.data.Record: float32 `values`, and a label of one number."""
    def tensor(numbers):
        return field(2, field(1, struct.pack(f"<{len(numbers)}f", *numbers)))  # Value.float32_tensor.values

    def entry(number, name, numbers):
        return field(number, field(1, name.encode()) + field(2, tensor(numbers)))
    return entry(1, "values", values) + entry(2, "values", [label])
