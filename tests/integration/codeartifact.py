#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pip's index in a CodeArtifact repository: `paceline train` against a server that checks the signatures.

The job's interpreter is a script that records the arguments and variables that pip would get.
"""
import hashlib
import hmac
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.parse

BUILD = pathlib.Path(os.environ.get('PACELINE_BUILD', pathlib.Path(__file__).resolve().parents[2] / 'build'))
PACELINE = str(BUILD / 'entrypoint' / 'paceline')
ARN = 'arn:aws:codeartifact:eu-west-3:111122223333:repository/my-domain/my-repo'
TOKEN = 'eyJ2ZXIiOjF9.secret+token/==_-'
KEYS = {'AWS_ACCESS_KEY_ID': 'AKIDEXAMPLE', 'AWS_SECRET_ACCESS_KEY': 'wJalrXUtnFEMI', 'AWS_SESSION_TOKEN': 'session/token=='}
FROM_CONTAINER = {'AccessKeyId': 'AKIDCONTAINER', 'SecretAccessKey': 'other', 'Token': 'of/the/container', 'Expiration': '2099-01-01T00:00:00Z'}
PYTHON = '''#!/bin/sh
case "$*" in
*find_spec*) exit 0 ;;
*pip*) printf '%s\\n' "$0 $*" >"$SM_OUTPUT_DATA_DIR/pip"; printf '%s' "$PIP_INDEX_URL" >"$SM_OUTPUT_DATA_DIR/index" ;;
*) echo "the program runs" ;;
esac
'''


def expected_signature(handler, secret, scope, names):
    path, _, query = handler.path.partition('?')
    pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    canonical = '\n'.join([
        handler.command, urllib.parse.quote(path), '&'.join(f'{urllib.parse.quote(k, safe="-_.~")}={urllib.parse.quote(v, safe="-_.~")}' for k, v in pairs),
        *(f'{name}:{" ".join(handler.headers[name].split())}' for name in names), '', ';'.join(names), hashlib.sha256(b'').hexdigest()])
    text = '\n'.join(['AWS4-HMAC-SHA256', handler.headers['x-amz-date'], '/'.join(scope), hashlib.sha256(canonical.encode()).hexdigest()])
    key = ('AWS4' + secret).encode()
    for part in scope:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def why_refused(self):
        """Returns the error in the signature, or None."""
        given = dict(part.strip().split('=', 1) for part in self.headers.get('Authorization', '').removeprefix('AWS4-HMAC-SHA256 ').split(',') if '=' in part)
        key_id, *scope = given.get('Credential', '').split('/')
        names = given.get('SignedHeaders', '').split(';')
        secrets = {KEYS['AWS_ACCESS_KEY_ID']: (KEYS['AWS_SECRET_ACCESS_KEY'], KEYS['AWS_SESSION_TOKEN']),
                   FROM_CONTAINER['AccessKeyId']: (FROM_CONTAINER['SecretAccessKey'], FROM_CONTAINER['Token'])}
        if key_id not in secrets:
            return f'the key {key_id!r} is not known'
        secret, session = secrets[key_id]
        if scope[1:] != ['eu-west-3', 'codeartifact', 'aws4_request'] or not self.headers['x-amz-date'].startswith(scope[0]):
            return f'the scope is {scope}'
        if not {'host', 'x-amz-date', 'x-amz-security-token'} <= set(names) or self.headers['x-amz-security-token'] != session:
            return f'signed are {names}'
        return None if hmac.compare_digest(expected_signature(self, secret, scope, names), given['Signature']) else 'the signature is another'

    def do_GET(self):
        path, _, query = self.path.partition('?')
        fields = dict(urllib.parse.parse_qsl(query))
        if path == '/keys':
            self.answer(200, FROM_CONTAINER)
            return
        self.server.asked.append(f'{self.command} {path}')
        why = self.why_refused()
        if why:
            self.answer(403, {'message': why})
            return
        wanted = {'domain': 'my-domain', 'domain-owner': '111122223333'}
        replies = self.server.replies.get(path, [])
        if replies:
            self.answer(*replies.pop(0))
        elif (self.command, path, fields) == ('POST', '/v1/authorization-token', wanted):
            self.answer(200, {'authorizationToken': TOKEN, 'expiration': 1.7e9})
        elif (self.command, path, fields) == ('GET', '/v1/repository/endpoint', {**wanted, 'repository': 'my-repo', 'format': 'pypi'}):
            self.answer(200, {'repositoryEndpoint': 'https://my-domain-111122223333.d.codeartifact.eu-west-3.amazonaws.com/pypi/my-repo/'})
        else:
            self.answer(400, {'message': f'not what this server knows: {self.command} {self.path}'})

    do_POST = do_GET


class Job:
    """One run; `replies` are the server's first answers, by path."""

    def __init__(self, replies=None, arn=ARN, **variables):
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.asked, self.server.replies = [], replies or {}
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        base = pathlib.Path(tempfile.mkdtemp(prefix='paceline-codeartifact-'))
        for name, text in {'input/config/resourceconfig.json': '{"current_host": "algo-1", "hosts": ["algo-1"]}',
                           'input/config/hyperparameters.json': '{"sagemaker_program": "\\"train.py\\""}',
                           'code/train.py': '', 'code/requirements.txt': 'x\n', 'bin/python': PYTHON}.items():
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (base / 'bin/python').chmod(0o755)
        address = f'http://127.0.0.1:{self.server.server_port}'
        environment = {'PATH': os.environ['PATH'], 'HOME': str(base), 'SAGEMAKER_BASE_DIR': str(base), 'PACELINE_PYTHON': str(base / 'bin/python'),
                       'CA_REPOSITORY_ARN': arn, 'AWS_ENDPOINT_URL_CODEARTIFACT': address, 'AWS_REGION': 'us-east-1', **KEYS,
                       **{name: value.format(address=address) for name, value in variables.items()}}
        environment = {name: value for name, value in environment.items() if value}
        done = subprocess.run([PACELINE, 'train'], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180)
        self.server.shutdown()
        self.server.server_close()
        read = lambda name: (base / name).read_text() if (base / name).exists() else ''
        self.code, self.log, self.asked = done.returncode, done.stdout, self.server.asked
        self.pip, self.index, self.failure = read('output/data/pip'), read('output/data/index'), read('output/failure')
        self.plan = subprocess.run([PACELINE, 'plan'], env=environment, stdout=subprocess.PIPE, text=True, timeout=60).stdout
        shutil.rmtree(base)

    def check(self, condition, what):
        if not condition:
            sys.exit(f'FAILED: {what}\ncode {self.code}, asked {self.asked}\npip: {self.pip}index: {self.index}\nfailure: {self.failure}\n{self.log}')

    def installed(self):
        self.check(self.code == 0, 'the job failed')
        self.check('-m pip install -r requirements.txt' in self.pip, 'pip was not run')
        self.check(self.index == 'https://aws:' + urllib.parse.quote(TOKEN, safe='-_.~') +
                   '@my-domain-111122223333.d.codeartifact.eu-west-3.amazonaws.com/pypi/my-repo/simple/', 'pip has another index')
        for text, where in ((self.log, 'the log'), (self.pip, 'a command line'), (self.plan, 'the plan')):
            self.check('secret' not in text and 'eyJ2' not in text, f'the token is in {where}')
        self.check('paceline-index' in self.plan, 'the plan does not show the step')

    def fails(self, *words):
        self.check(self.code != 0 and not self.pip, 'the job did not fail, or pip was run')
        for word in words:
            self.check(word in self.failure[:1024], f'the failure file lacks {word!r}')
        self.check('secret' not in self.failure and 'secret' not in self.log, 'the token is told')


def main():
    Job().installed()
    Job(PIP_INDEX_URL='https://example.org/simple').installed()
    Job(AWS_ENDPOINT_URL_CODEARTIFACT='', AWS_ENDPOINT_URL='{address}').installed()
    Job(AWS_ACCESS_KEY_ID='', AWS_SECRET_ACCESS_KEY='', AWS_SESSION_TOKEN='', AWS_CONTAINER_CREDENTIALS_FULL_URI='{address}/keys').installed()
    again = Job({'/v1/authorization-token': [(500, {}), (429, {'message': 'slower'})]})
    again.installed()
    again.check(again.asked.count('POST /v1/authorization-token') == 3, 'not asked again')
    Job({'/v1/authorization-token': [(403, {'message': 'not allowed to codeartifact:GetAuthorizationToken'})]}).fails(
        'installing requirements.txt', "GetAuthorizationToken for the repository 'my-repo' in the domain 'my-domain'", 'HTTP 403: not allowed to')
    Job({'/v1/repository/endpoint': [(404, {'message': 'Repository not found'})]}).fails('GetRepositoryEndpoint', 'HTTP 404: Repository not found')
    Job({'/v1/repository/endpoint': [(200, {'repositoryEndpoint': 'ftp://elsewhere/'})]}).fails('expected an https:// address', 'ftp://elsewhere/')
    Job({'/v1/authorization-token': [(200, {'token': 'x'})]}).fails('GetAuthorizationToken', 'authorizationToken')
    Job(AWS_SECRET_ACCESS_KEY='wrong').fails('HTTP 403: the signature is another')
    for arn in ('my-repo', 'arn:aws:s3:eu-west-3:1:repository/d/r', 'arn:aws:codeartifact:eu-west-3:1:repository/d', 'arn:aws:codeartifact::1:repository/d/r'):
        Job(arn=arn).fails('CA_REPOSITORY_ARN is', 'expected arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY')
    print('pip gets the index of CodeArtifact, and its token is nowhere else')


main()
