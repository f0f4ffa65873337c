#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The client against moto's server from PyPI, which checks every signature, with boto3 as the second reader: what objects
carry, above all their encryption by a KMS key.

  s3_moto.py PACELINE_S3       exits 77, saying why, where PyPI cannot be reached

Moto keeps no bucket key of an upload in parts, and applies no conditions of a bucket's policy: s3_objects.py has both.
"""
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from waiting import wait_until  # noqa: E402

TOOL = sys.argv[1]
SYNC = pathlib.Path(TOOL).with_name("paceline-sync")
PACKAGES = ["moto[server]==5.2.*", "boto3"]
LIMIT_S = 120
PARTS = ["--quiet", "--part", "5"]  # MiB
REGION = "us-east-1"


def make_venv(root):
    """Moto and boto3 in a separate virtual environment."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    for words in ([python, "-m", "venv", root / "venv"], [root / "venv/bin/pip", "install", "-q", *PACKAGES]):
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            print("moto cannot be installed from PyPI: " + done.stdout.strip().split("\n")[-1])
            sys.exit(77)
    return root / "venv"


class Server:
    """Moto's server, a user with keys of its own, and boto3's client with them."""

    def __init__(self, root, venv):
        import boto3  # from the environment, in which this program runs by now
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        with open(root / "server.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([venv / "bin/moto_server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(self.answers, "moto's server is not there")
        connect = lambda service, key, secret: boto3.client(service, endpoint_url=self.url, region_name=REGION, aws_access_key_id=key, aws_secret_access_key=secret)
        iam = connect("iam", "x", "x")
        iam.create_user(UserName="tester")
        iam.put_user_policy(UserName="tester", PolicyName="all", PolicyDocument=json.dumps(
            {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["s3:*", "kms:*"], "Resource": "*"}]}))
        keys = iam.create_access_key(UserName="tester")["AccessKey"]
        self.environment = {**os.environ, "AWS_ENDPOINT_URL_S3": self.url, "AWS_REGION": REGION, "NO_PROXY": "*",
                            "AWS_ACCESS_KEY_ID": keys["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"]}
        self.key = connect("kms", "x", "x").create_key()["KeyMetadata"]["Arn"]
        # From now on every request needs a right signature.
        urllib.request.urlopen(urllib.request.Request(self.url + "/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}), timeout=LIMIT_S).close()
        self.s3 = connect("s3", keys["AccessKeyId"], keys["SecretAccessKey"])

    def answers(self):
        assert self.process.poll() is None, "moto's server ended"
        try:
            urllib.request.urlopen(self.url + "/moto-api/", timeout=LIMIT_S).close()
        except OSError:
            return False
        return True

    def run(self, *words, code=0, program=TOOL, **environment):
        """Run the client; its standard output, or its message when `code` is not 0."""
        done = subprocess.run([program, *map(str, words)], env={**self.environment, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=LIMIT_S, check=False)
        message = done.stderr.decode(errors="replace")
        assert done.returncode == code, f"{words}: exit {done.returncode}, not {code}: {message}"
        return message if code else done.stdout

    def sealed(self, key, bucket="bkt"):
        """How an object is encrypted: algorithm, key, and whether by a key of the bucket."""
        head = self.s3.head_object(Bucket=bucket, Key=key)
        return head.get("ServerSideEncryption"), head.get("SSEKMSKeyId"), head.get("BucketKeyEnabled")

    def bytes_of(self, key, bucket="bkt"):
        return self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()


def keys_of(server, prefix):
    return [line.split(None, 2)[2] for line in server.run("--recursive", "ls", f"s3://bkt/{prefix}").decode().splitlines()]


def check_signatures(server, tree):
    """A wrong secret is refused, so the later cases prove correct signatures."""
    message = server.run("cp", tree / "small", "s3://bkt/refused", code=1, AWS_SECRET_ACCESS_KEY="wrong")
    assert "403 SignatureDoesNotMatch" in message, message


def check_encryption(server, tree):
    """Algorithm, KMS key and bucket key arrive by cp in one request and in parts, of a tree, of sync and of a copy; reading needs no option."""
    options = ["--sse", "aws:kms", "--sse-kms-key-id", server.key, "--bucket-key-enabled"]
    for name in ("small", "large"):
        server.run(*PARTS, *options, "cp", tree / name, f"s3://bkt/one/{name}")
        server.run(*PARTS, *options, "cp", f"s3://bkt/one/{name}", f"s3://bkt/copy/{name}")
    server.run(*PARTS, *options, "--recursive", "cp", tree, "s3://bkt/tree/")
    sync = subprocess.Popen([SYNC, *options, tree, "s3://bkt/sync"], env=server.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        listed = lambda: {item["Key"] for item in server.s3.list_objects_v2(Bucket="bkt", Prefix="sync/").get("Contents", [])}
        wait_until(lambda: sync.poll() is not None or listed() == {"sync/large", "sync/small"}, "what sync uploads is not there")
    finally:
        sync.terminate()
        _, message = sync.communicate(timeout=LIMIT_S)
    assert sync.returncode == 0, message
    for folder in ("one", "copy", "tree", "sync"):
        assert keys_of(server, f"{folder}/") == [f"{folder}/large", f"{folder}/small"], folder
        for name in ("small", "large"):
            key, data = f"{folder}/{name}", (tree / name).read_bytes()
            in_parts = "-" in server.s3.head_object(Bucket="bkt", Key=key)["ETag"]
            assert in_parts == (name == "large" and folder != "sync"), f"{key} is in parts: {in_parts}"
            assert server.sealed(key) == ("aws:kms", server.key, None if in_parts else True), (key, server.sealed(key))
            assert server.bytes_of(key) == data, f"the bytes of {key} differ"
            assert server.run("cat", f"s3://bkt/{key}") == data, f"the bytes of {key} differ in cat"
    for algorithm in ("AES256", "aws:kms:dsse"):
        server.run("--sse", algorithm, "cp", tree / "small", "s3://bkt/other")
        assert server.sealed("other") == (algorithm, None, None), server.sealed("other")


def check_default_encryption(server, tree):
    """A bucket's own setting holds for what is written without options, also for a copy out of another bucket; an option comes before it."""
    server.s3.put_bucket_encryption(Bucket="sealed", ServerSideEncryptionConfiguration={"Rules": [
        {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": server.key}, "BucketKeyEnabled": True}]})
    server.run(*PARTS, "--recursive", "cp", tree, "s3://sealed/tree/")
    for name in ("small", "large"):
        server.run(*PARTS, "--sse", "AES256", "cp", tree / name, f"s3://bkt/plain/{name}")
        server.run(*PARTS, "cp", f"s3://bkt/plain/{name}", f"s3://sealed/copy/{name}")
        for key in (f"tree/{name}", f"copy/{name}"):
            assert server.sealed(key, "sealed")[:2] == ("aws:kms", server.key), (key, server.sealed(key, "sealed"))
            assert server.bytes_of(key, "sealed") == (tree / name).read_bytes(), f"the bytes of {key} differ"
    server.run("--sse", "AES256", "cp", tree / "small", "s3://sealed/small")
    assert server.sealed("small", "sealed")[0] == "AES256", server.sealed("small", "sealed")


def check_copy(server, tree):
    """A copy to another bucket keeps what boto3 has put with the object, in one request and in parts, except tags."""
    properties = {"ContentType": "text/x-odd; charset=utf-8", "ContentEncoding": "gzip", "ContentLanguage": "de", "CacheControl": "max-age=5",
                  "ContentDisposition": 'attachment; filename="a b"', "Metadata": {"who": "me and you", "x-y": "1"}}
    for name in ("small", "large"):
        server.s3.put_object(Bucket="bkt", Key=f"from/{name}", Body=(tree / name).read_bytes(), Tagging="a%20b=1%3D2%20%2B%20x&c=", **properties)
        server.run(*PARTS, "cp", f"s3://bkt/from/{name}", f"s3://other/{name}")
        head = server.s3.head_object(Bucket="other", Key=name)
        carried = {field: head[field] for field in properties if head.get(field) not in (None, {}, "binary/octet-stream")}
        assert carried == properties, f"{name} carries {carried}, not {properties}"
        assert server.s3.get_object_tagging(Bucket="other", Key=name)["TagSet"] == [], name
        assert server.bytes_of(name, "other") == (tree / name).read_bytes(), f"the bytes of {name} differ"


def check_boto3(server, tree):
    """What boto3 uploads in parts, encrypted and with its own checksums, comes down whole, one object and a tree."""
    import boto3.s3.transfer
    parts = boto3.s3.transfer.TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
    for algorithm in ("CRC32", "SHA256"):
        for name in ("small", "large"):
            server.s3.upload_file(str(tree / name), "bkt", f"boto3/{algorithm}/{name}", Config=parts, ExtraArgs={
                "ServerSideEncryption": "aws:kms", "SSEKMSKeyId": server.key, "ChecksumAlgorithm": algorithm})
    down = tree.with_name("down")
    server.run("--quiet", "--recursive", "cp", "s3://bkt/boto3/", down)
    for path in down.rglob("*.*"):
        raise AssertionError(f"an unfinished file: {path}")
    for algorithm in ("CRC32", "SHA256"):
        for name in ("small", "large"):
            assert (down / algorithm / name).read_bytes() == (tree / name).read_bytes(), f"{algorithm}/{name} differs"
            server.run("--quiet", "cp", f"s3://bkt/boto3/{algorithm}/{name}", down / "one")
            assert (down / "one").read_bytes() == (tree / name).read_bytes(), f"{algorithm}/{name} differs by itself"


def run_checks(root, venv):
    tree = root / "tree"
    tree.mkdir()
    (tree / "small").write_bytes(b"small")
    (tree / "large").write_bytes(random.Random(5).randbytes((11 << 20) + 7))
    server = Server(root, venv)
    try:
        for bucket in ("bkt", "sealed", "other"):
            server.s3.create_bucket(Bucket=bucket)
        for check in (check_signatures, check_encryption, check_default_encryption, check_copy, check_boto3):
            check(server, tree)
            print(f"ok: {check.__doc__}", flush=True)
    except BaseException:
        print("".join((root / "server.log").read_text(errors="replace").splitlines(keepends=True)[-20:]), file=sys.stderr)
        raise
    finally:
        server.process.kill()
        server.process.wait()


def main():
    if len(sys.argv) > 2:  # again, by the environment's own Python
        run_checks(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
        return 0
    root = pathlib.Path(tempfile.mkdtemp(prefix="paceline-moto-"))
    try:
        venv = os.environ.get("PACELINE_TEST_MOTO")
        venv = pathlib.Path(venv) if venv else make_venv(root)
        return subprocess.run([venv / "bin/python", __file__, TOOL, root, venv], check=False).returncode
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
