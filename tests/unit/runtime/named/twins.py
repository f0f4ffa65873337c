#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The simulation of named tensors finds broken twins of the engine: each has one small fault.

Usage: twins.py SIMULATION, in the build folder. Compiles each twin's file again, links it into the simulation instead of the
true one, and runs at most a thousand seeds.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

SEEDS = 1000
SECONDS = 100  # a thousand seeds take one or two
# File in runtime/named/, what its text becomes, and the fault.
TWINS = [
    ("table.c", "memcmp(&entry->definition, definition, sizeof(*definition)) != 0", "false", "ranks that differ are not noticed"),
    ("table.c", "table->joined[i] & ~entry->announced_by[i]", "table->joined[i]", "a rank that submitted and joined counts twice"),
    ("table.c", "if (conflict && !group->entries[i]->conflict) {", "if (false) {", "a group goes on without a member that failed"),
    ("table.c", "    entry->awaits_group = false;\n", "", "a group is not collected a second time"),
    ("rounds.c", "        head->ranges[*ranges - 1].count++;\n", "", "the second number of a range is lost"),
    ("rounds.c", "    while (named->first_queued) {", "    while (false) {", "what is not announced does not end when a rank leaves"),
    ("rounds.c", "    pl_operation_unqueue(named, operation);\n", "", "what fails stays queued"),
    ("describe.c", "collective->root = entry->definition.root;", "collective->root = 0;", "every broadcast is rank 0's"),
    ("rounds.c", "        memset(named->numbered, 0, sizeof(named->numbered));\n", "", "numbers go on after a join"),
    ("rounds.c", "if (any & NAMED_HEAD_EXPIRED) {", "if (false) {", "names that never come do not expire"),
    ("rounds.c", "    if (named->held) {", "    if (false) {", "rounds begin while the sets change"),
    ("table.c", "    if (!impossible) {", "    if (true) {", "kinds that a joined rank cannot take part in run"),
    ("table.c", "        if (!entry->definition.group_members) {", "        if (true) {", "a group's members begin one by one"),
    ("describe.c", "counts[i] = entry->rows[i];", "counts[i] = entry->rows[0];", "all ranks give as many rows as the first"),
    ("describe.c", "(i < definition->shape[0] % ranks)", "(i > definition->shape[0] % ranks)", "the wrong ranks get a row more"),
    ("operation.c", "results[operation - submission->operations] = operation->result;", "results[0] = operation->result;", "the results of a group are one"),
    ("operation.c", "struct pl_named_entry *entry = table->ready[i];", "struct pl_named_entry *entry = table->ready[named->rank % 2 ? count - 1 - i : i];",
     "ranks begin in different orders"),
    ("describe.c", "counts[i] = entry->rows[own * ranks + i];", "counts[i] = entry->rows[i * ranks + own];", "a rank's splits are the others'"),
    ("describe.c", "collective->divisor = (uint32_t)contributors;", "collective->divisor = (uint32_t)named->ranks;",
     "an average is over ranks that have joined, too"),
    ("describe.c", "named->options.join_divisor == PL_NAMED_DIVIDE_BY_CONTRIBUTORS", "true", "an average is never over all ranks"),
    ("describe.c", "collective->count = pl_named_definition_elems(&entry->definition);\n    if", "collective->count = entry->definition.shape[0];\n    if",
     "a sum has as many elements as its first dimension"),
    ("describe.c", "collective->postscale = definition->postscale;", "collective->postscale = definition->prescale;", "a sum is scaled with one factor"),
    ("table.c", "impossible = table->strict_join;", "", "an allgather goes on after a strict join"),
    ("operation.c", "memcmp(definition, &entry->agreed, sizeof(*definition)) != 0", "false", "a request stays when its name gets another definition"),
    ("operation.c", "entry->announced == named->ranks", "true", "a request of all ranks is started without a rank that has joined"),
    ("named.c", "pl_hash(PL_HASH_START, base, strlen(base))", "PL_HASH_START", "groups of one size are one group"),
    ("service.c", "named == service->all && service->synced.joining", "false", "a rank that has joined submits"),
    ("service_step.c", "    service->all->held = false;\n", "", "no round begins after a change of the sets"),
    ("service.c", "} else if (service->synced.outstanding > 0 && service->synced.thread_sleeps) {", "} else if (false) {",
     "a thread that has waited leaves, and wakes nobody"),
    ("service_step.c", "block && !service->all->next", "block", "a wait in one set holds the others"),
    ("service_sets.c", "    if (name && name->submission) {", "    if (false) {", "a name is taken twice"),
    ("service_sets.c", "    forget_names(service, set);\n", "    (void)forget_names;\n", "a name's entry outlives its set"),
]


def commands(program):
    """What ninja would run: the last command links the program."""
    return subprocess.run(["ninja", "-t", "commands", program], check=True, capture_output=True, text=True).stdout.splitlines()


def run(words):
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{shlex.join(words)}\n{result.stdout}{result.stderr}")


def build(folder, program, lines, twin):
    name, old, new, _ = twin
    compiling = [line for line in lines if re.search(rf"/runtime/named/{re.escape(name)}( |$)", line) and " -c " in line]
    words = shlex.split(compiling[0])
    source = words[words.index("-c") + 1]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    if text.count(old) != 1:
        sys.exit(f"twins.py: {name} has '{old}' {text.count(old)} times, not once")
    patched, unit, twin_program = (os.path.join(folder, other) for other in ("twin.c", "twin.o", "twin"))
    with open(patched, "w", encoding="utf-8") as file:
        file.write(text.replace(old, new))
    words[words.index("-c") + 1] = patched
    words[words.index("-o") + 1] = unit
    run([word for word in words if word != "-Werror"])
    words = shlex.split(lines[-1])
    at = words.index("-o")
    words[at + 1] = twin_program
    words.insert(at + 2, unit)
    run(words)
    return twin_program


def main():
    program = os.path.relpath(sys.argv[1])
    lines = commands(program)
    missed = 0
    for twin in TWINS:
        with tempfile.TemporaryDirectory() as folder:
            twin_program = build(folder, program, lines, twin)
            environment = dict(os.environ, CK_FORK="no", PACELINE_TEST_SEED="1", PACELINE_TEST_WORLDS=str(SEEDS))
            try:
                result = subprocess.run([twin_program], env=environment, capture_output=True, text=True, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                print(f"found: {twin[0]}: {twin[3]}: it does not end", flush=True)
                continue
        found = re.search(r"PACELINE_TEST_SEED=(\d+) PACELINE_TEST_WORLDS=1: (.*)", result.stdout)
        what = f"seed {found.group(1)}: {found.group(2)}" if found else f"exit code {result.returncode}"
        missed += result.returncode == 0
        print(f"{'MISSED' if result.returncode == 0 else 'found'}: {twin[0]}: {twin[3]}: {what[:150]}", flush=True)
    sys.exit(f"{missed} of {len(TWINS)} broken twins not found in {SEEDS} seeds" if missed else 0)


main()
