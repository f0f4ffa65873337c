#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Covers device/kernel_embed.S.
"""The kernels' image has something for every GPU from its oldest architecture on: machine code of that generation, or PTX that is not newer.

    test_image.py KERNEL.FATBIN
"""
import pathlib
import struct
import sys

GENERATIONS = [70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121, 130]
PTX, MACHINE_CODE = 1, 2

image = pathlib.Path(sys.argv[1]).read_bytes()
magic, _, header_bytes, bytes_after = struct.unpack_from("<IHHQ", image)
assert magic == 0xBA55ED50 and header_bytes + bytes_after <= len(image), "this is not a fat binary"
at, entries = header_bytes, []
while at < header_bytes + bytes_after:
    kind, _, header, size = struct.unpack_from("<HHIQ", image, at)
    entries.append((kind, struct.unpack_from("<I", image, at + 28)[0]))
    at += header + size
print(entries)
for device in GENERATIONS:
    served = [(kind, arch) for kind, arch in entries if arch <= device and (kind == PTX or arch // 10 == device // 10)]
    assert served or device < min(arch for _, arch in entries), f"a GPU of sm_{device} finds no code"
