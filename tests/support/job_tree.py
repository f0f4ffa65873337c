#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trees like /opt/ml, for tests that run `paceline train` in them, and the run of such a test's cases."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get('PACELINE_BUILD', pathlib.Path(__file__).resolve().parents[2] / 'build'))
SOURCE = pathlib.Path(__file__).resolve().parents[2]
PACELINE = str(BUILD / 'entrypoint' / 'paceline')
SHOW = '#!/bin/sh\nfor a in "$@"; do printf "%s\\n" "$a"; done > "$SM_OUTPUT_DATA_DIR/args"\nenv -0 > "$SM_OUTPUT_DATA_DIR/env"\npwd > "$SM_OUTPUT_DATA_DIR/cwd"\n'
RESOURCE = {'current_host': 'algo-1', 'hosts': ['algo-1'], 'network_interface_name': 'lo'}
PYTHON = shutil.which('python3')
skipped = []


class Tree:
    def __init__(self, hps=None, code=None, resource=RESOURCE, channels=None, env=None):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix='paceline-contract-'))
        self.env = {'PATH': os.environ['PATH'], 'HOME': str(self.base), 'SAGEMAKER_BASE_DIR': str(self.base), **(env or {})}
        self.write('input/config/hyperparameters.json', hps if isinstance(hps, str) else json.dumps(hps or {}))
        self.write('input/config/resourceconfig.json', resource if isinstance(resource, str) else json.dumps(resource))
        if channels is not None:
            self.write('input/config/inputdataconfig.json', json.dumps(channels))
        for name, text in (code or {}).items():
            self.write('code/' + name, text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.base)

    def write(self, name, text):
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def read(self, name):
        path = self.base / name
        return path.read_text(errors='replace') if path.exists() else None

    def train(self, *words, under=()):
        self.done = subprocess.run([*under, PACELINE, *(words or ('train',))], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
        return self.done.returncode

    def seen(self):
        return dict(item.split('=', 1) for item in self.read('output/data/env').split('\0') if item)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def refused(tree, *parts):
    """The job fails, and the failure file has the reason and the place."""
    code = tree.train()
    text = tree.read('output/failure') or ''
    expect(code != 0, f'exit code {code}')
    expect(tree.read('output/success') is None, 'success was written')
    for part in parts:
        expect(part in text[:1024], f'{part!r} is not in the failure file: {text!r}')


def run(cases):
    """Run all cases, print what failed, and return the exit code."""
    failed = 0
    for case in cases:
        try:
            case()
        except AssertionError as error:
            failed += 1
            print(f'FAILED {case.__name__}: {error}')
    for reason in skipped:
        print(f'skipped {reason}')
    print(f'{len(cases) - failed - len(skipped)} passed, {failed} failed, {len(skipped)} skipped')
    return 1 if failed else 0
