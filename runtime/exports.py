#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the linker's version script of libpaceline.so: what the installed headers declare, and nothing else.

    exports.py MAP HEADER...
"""
import re
import sys


def plain(text):
    """The text without comments, the contents of strings, what only C++ sees, the preprocessor's lines, and PL_CLEANUP's inline functions."""
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', lambda match: '""' if match.group().startswith('"') else " ", text, flags=re.S)
    text = re.sub(r"(?m)^#ifdef __cplusplus\n.*?^#endif$", "", text, flags=re.S)
    return re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$|^PL_CLEANUP\(.*\)$", "", text)


def statements(text):
    """What stands at file level, each without the contents of its braces. A function with a body is inline: no export."""
    depth, statement = 0, ""
    for character in text:
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0 and "(" in statement:
                statement = ""
        elif depth == 0 and character == ";":
            yield statement
            statement = ""
        elif depth == 0:
            statement += character
    if depth != 0 or statement.strip():
        raise ValueError(f"this does not end: {statement.strip()!r}")


def declared(text):
    for statement in statements(plain(text)):
        words = statement.split()
        if not words or words[0] in ("static", "typedef", "_Static_assert"):
            continue
        if "(" in statement:
            name = re.search(r"\b(pl_[a-z0-9_]+)\s*\(", statement)
        elif words[0] == "extern":
            name = re.search(r"\b(pl_[a-z0-9_]+)(?:\s*\[[^]]*\])*\s*$", statement)
        elif words[0] in ("struct", "enum", "union"):
            continue
        else:
            name = None
        if not name:
            raise ValueError(f"what does this declare? {' '.join(words)!r}")
        yield name.group(1)


def main():
    names = set()
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as header:
            try:
                names.update(declared(header.read()))
            except ValueError as error:
                sys.exit(f"exports.py: {path}: {error}")
    with open(sys.argv[1], "w", encoding="utf-8") as script:
        script.write("{\n  global:\n" + "".join(f"    {name};\n" for name in sorted(names)) + "  local: *;\n};\n")


main()
