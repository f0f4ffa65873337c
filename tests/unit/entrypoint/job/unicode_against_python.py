#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Upper case and printability of every code point are Python's, where Python knows the same Unicode version as our tables."""
import subprocess
import sys
import unicodedata

lines = subprocess.run([sys.argv[1]], stdout=subprocess.PIPE, check=True).stdout.decode().split('\n')
if lines[0] != unicodedata.unidata_version:
    print(f'our tables are of Unicode {lines[0]}, this Python is of {unicodedata.unidata_version}')
    sys.exit(77)
for code in range(1, 0x110000):
    character = chr(code)
    expected = f'{character.upper().encode("utf-8", "surrogatepass").hex()} {int(character.isprintable())}'
    assert lines[code] == expected, f'U+{code:04X}: expected {expected}, found {lines[code]}'
print(f'all code points of Unicode {lines[0]} agree')
