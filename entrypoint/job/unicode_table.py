#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints unicode_table.h: what Python's str.upper() and str.isprintable() say about each code point.

Run it to move to a newer Unicode version: python3 unicode_table.py > unicode_table.h
"""
import sys
import unicodedata

LAST = 0x10FFFF
runs = []  # [first, last, step, delta]
special = []
for code in range(LAST + 1):
    upper = chr(code).upper()
    if len(upper) > 1:
        special.append((code, upper))
    elif ord(upper) != code:
        delta = ord(upper) - code
        if runs and runs[-1][3] == delta and runs[-1][0] == runs[-1][1] and code - runs[-1][1] in (1, 2):
            runs[-1][2] = code - runs[-1][1]
            runs[-1][1] = code
        elif runs and runs[-1][3] == delta and code - runs[-1][1] == runs[-1][2]:
            runs[-1][1] = code
        else:
            runs.append([code, code, 1, delta])
hidden = []  # [first, last]
for code in range(LAST + 1):
    if not chr(code).isprintable():
        if hidden and hidden[-1][1] == code - 1:
            hidden[-1][1] = code
        else:
            hidden.append([code, code])

out = [
    '/* SPDX-License-Identifier: Apache-2.0 */',
    f'/* Made by unicode_table.py; Unicode {unicodedata.unidata_version}. Private to unicode.c. */',
    '#ifndef PL_ENTRYPOINT_JOB_UNICODE_TABLE_H',
    '#define PL_ENTRYPOINT_JOB_UNICODE_TABLE_H',
    '',
    '#include <stdint.h>',
    '',
    f'#define PL_UNICODE_VERSION "{unicodedata.unidata_version}"',
    '',
    '/* clang-format off */',
    'static const struct { uint32_t first; uint32_t last; uint8_t step; int32_t delta; } upper_runs[] = {',
]
out += [f'    {{0x{a:X}, 0x{b:X}, {c}, {d}}},' for a, b, c, d in runs]
out += ['};', '', 'static const struct { uint32_t code; const char *upper; } upper_special[] = {']
out += ['    {0x%X, "%s"},' % (code, ''.join(f'\\x{b:02X}' for b in upper.encode())) for code, upper in special]
out += ['};', '', 'static const struct { uint32_t first; uint32_t last; } unprintable[] = {']
line = '   '
for a, b in hidden:
    item = f' {{0x{a:X}, 0x{b:X}}},'
    if len(line) + len(item) > 120:
        out.append(line)
        line = '   '
    line += item
out += [line, '};', '/* clang-format on */', '', '#endif']
sys.stdout.write('\n'.join(out) + '\n')
