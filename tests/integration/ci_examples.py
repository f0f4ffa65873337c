#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files that users copy into their repositories, and this repository's own workflows, follow the schemas that the services publish.

The schemas come with check-jsonschema and kubernetes-validate, from PyPI into a virtual environment. Without a network the test skips.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ.get('PACELINE_SOURCE', pathlib.Path(__file__).resolve().parents[2]))
CI = SOURCE / 'examples/ci'
# Each file's schema, and a change that makes the file wrong.
CHECKED = {
    CI / 'github-actions.yml': ('vendor.github-workflows', 'runs-on:', 'runs-where:'),
    CI / 'gitlab-ci.yml': ('vendor.gitlab-ci', '  services:\n    - docker', '  services: 3\n    # docker'),
    SOURCE / '.github/workflows/ci.yml': ('vendor.github-workflows', 'container:', 'image:'),
    SOURCE / '.github/workflows/release.yml': ('vendor.github-workflows', 'permissions:', 'permits:'),
    SOURCE / '.github/ISSUE_TEMPLATE/bug.yml': ('vendor.github-issue-forms', 'type: textarea', 'type: text area'),
}
# The keys of a build specification, by "Build specification reference for CodeBuild"; it has no published schema.
BUILDSPEC = {'version', 'run-as', 'env', 'proxy', 'batch', 'phases', 'reports', 'artifacts', 'cache'}
PHASES = {'install', 'pre_build', 'build', 'post_build'}
PHASE = {'run-as', 'on-failure', 'on-build-failure', 'runtime-versions', 'commands', 'finally'}


def run(*words, good=True):
    done = subprocess.run([str(word) for word in words], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    print('$', *words, done.stdout, sep=' ')
    assert (done.returncode == 0) == good, f'exit code {done.returncode}'
    return done.stdout


def main(scratch):
    tools = scratch / 'tools/bin'
    run(sys.executable, '-m', 'venv', scratch / 'tools')
    installed = subprocess.run([tools / 'pip', 'install', '-q', 'check-jsonschema==0.39.0', 'kubernetes-validate==1.37.0', 'PyYAML'], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, timeout=600)
    if installed.returncode:
        print('skipped: no packages from PyPI:', installed.stdout.strip().splitlines()[-1])
        sys.exit(77)

    wrong = scratch / 'wrong.yml'
    for path, (schema, old, new) in CHECKED.items():
        run(tools / 'check-jsonschema', '--builtin-schema', schema, path)
        assert old in path.read_text(), path
        wrong.write_text(path.read_text().replace(old, new, 1))
        run(tools / 'check-jsonschema', '--builtin-schema', schema, wrong, good=False)

    release = (SOURCE / '.github/workflows/release.yml').read_text()
    stages = set(re.findall(r'(?m)^FROM .* AS ([\w-]+)$', (SOURCE / 'Dockerfile').read_text()))
    assert {'deb', 'wheel'} == set(re.findall(r'--target ([\w-]+)', release)) <= stages, stages
    version = run('sh', '-c', f'cd {SOURCE} && {re.search(r"(version=.*)", release).group(1)} && echo "$version"').strip()
    assert f'## {version}\n' in (SOURCE / 'CHANGELOG.md').read_text(), version

    job = SOURCE / 'examples/kubernetes/job.yaml'
    validate = [tools / 'kubernetes-validate', '--kubernetes-version', '1.31', '--strict']
    run(*validate, job)
    wrong.write_text(job.read_text().replace('completions:', 'completion:', 1))
    run(*validate, wrong, good=False)

    run(tools / 'python3', '-c', f'''
import sys, yaml
spec = yaml.safe_load(open(sys.argv[1]))
assert spec["version"] == 0.2 and set(spec) <= {BUILDSPEC!r}, set(spec)
assert set(spec["phases"]) <= {PHASES!r}, set(spec["phases"])
for name, phase in spec["phases"].items():
    assert set(phase) <= {PHASE!r} and all(isinstance(command, str) for command in phase["commands"]), name
''', CI / 'buildspec.yml')

    # The options that the three files give to smoke.sh are its options.
    known = set(re.findall(r'(?m)^ +(--[a-z]+) ', run(CI / 'smoke.sh', '--help')))
    for name in ('github-actions.yml', 'gitlab-ci.yml', 'buildspec.yml'):
        command = next(line for line in (CI / name).read_text().splitlines() if 'ci/smoke.sh ' in line and '--' in line)
        assert set(re.findall(r' (--[a-z]+)', command)) <= known, command


with tempfile.TemporaryDirectory() as folder:
    main(pathlib.Path(folder))
