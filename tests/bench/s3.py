#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares downloads: ours, curl with parallel ranges, boto3, awscrt, awscli and s3cmd, from one nginx on loopback; or many small
objects through `cp -r`, `feed` and a stream.

  s3.py PACELINE_S3 [--size MIB] [--runs N] [--venv DIR] [--plain | --tls]
  s3.py PACELINE_S3 --objects N --probe S3_PROBE [--latency MS] [--object-kib KIB] [--runs N]

Clients take turns, N times; one JSON line per client and scheme with the medians: bytes/s, the client's and the server's CPU seconds per GB
(1e9 bytes; on loopback one side does some of the other's work), peak memory, and the client's CPU cost divided by ours. Our client delivers in order, as boto3,
awscli and s3cmd do; curl's ranges and awscrt's parts are discarded as they arrive. A client that is not installed is left out with a line on standard error. A
virtual environment for the Python clients: python3 -m venv DIR && DIR/bin/pip install boto3 awscrt awscli s3cmd

With --objects the server is tests/fakes/fake_s3.py, whose answers come --latency milliseconds late; one JSON line per client with the medians:
objects/s, the client's CPU seconds per 1,000 objects, peak memory, and the rate as a ratio to that of `cp -r`.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BOTO3 = """
import sys, boto3, botocore, boto3.s3.transfer as t
s = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1", verify=sys.argv[2] or None,
                 config=botocore.config.Config(s3={"addressing_style": "path"}, max_pool_connections=16))
class Null:
    def write(self, data): return len(data)
    def seek(self, *a): return 0
    def tell(self): return 0
    def seekable(self): return True
s.download_fileobj("bkt", "object", Null(), Config=t.TransferConfig())
"""
CRT = """
import sys, urllib.parse
from awscrt import io, auth, http, s3
url = urllib.parse.urlsplit(sys.argv[1])
group = io.EventLoopGroup(); boot = io.ClientBootstrap(group, io.DefaultHostResolver(group))
tls = None
if url.scheme == "https":
    options = io.TlsContextOptions()
    options.verify_peer = False
    tls = io.ClientTlsContext(options).new_connection_options(); tls.set_server_name(url.hostname)
keys = auth.AwsCredentialsProvider.new_static("a", "b")
client = s3.S3Client(bootstrap=boot, region="us-east-1", credential_provider=keys, tls_connection_options=tls, throughput_target_gbps=20,
                     tls_mode=s3.S3RequestTlsMode.ENABLED if tls else s3.S3RequestTlsMode.DISABLED)
request = http.HttpRequest("GET", "/bkt/object", http.HttpHeaders([("host", url.netloc)]))
got = 0
def body(chunk, offset, **kw):
    global got; got += len(chunk)
client.make_request(request=request, type=s3.S3RequestType.GET_OBJECT, on_body=body).finished_future.result(600)
assert got == int(sys.argv[3]), got
"""


def start_nginx(folder):
    """nginx over the folder's objects; returns its process and two ports."""
    ports = subprocess.run([sys.executable, "-c", "import socket as s\na=[s.socket() for _ in 'ab']\n[x.bind(('127.0.0.1',0)) for x in a]\n"
                            "print(*[x.getsockname()[1] for x in a])"], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / "key", "-out", folder / "cert"], check=True, stderr=subprocess.DEVNULL)
    temporary = "\n".join(f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(f"""user root; worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/log;
events {{ worker_connections 256; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; {temporary}
  server {{ listen 127.0.0.1:{ports[0]}; listen 127.0.0.1:{ports[1]} ssl; root {folder}/root;
    ssl_certificate {folder}/cert; ssl_certificate_key {folder}/key; ssl_protocols TLSv1.3; }} }}""")
    process = subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    return process, ports


def clients(arguments, folder, url, cafile, size):
    """Name and command of each installed client."""
    found = {"paceline": [arguments.tool, "--connections", "4", "--endpoint-url", url, "cat", "s3://bkt/object"]}
    part = size // 8
    config = folder / "curl"
    config.write_text("parallel\nparallel-max = 8\nno-progress-meter\n" + "".join(
        f'next\nurl = "{url}/bkt/object"\nrange = {i * part}-{(i + 1) * part - 1 if i < 7 else size - 1}\noutput = /dev/null\n' for i in range(8)))
    if shutil.which("curl"):
        found["curl"] = ["curl", "-K", str(config)]
    python = str(pathlib.Path(arguments.venv, "bin", "python3")) if arguments.venv else sys.executable
    for name, module, script in (("boto3", "boto3", BOTO3), ("awscrt", "awscrt.s3", CRT)):
        if subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            found[name] = [python, "-c", script, url, cafile, str(size)]
        else:
            print(f"no {name}", file=sys.stderr)
    for name, words in (("aws", ["s3", "cp", "--quiet", "--endpoint-url", url, "s3://bkt/object", "-"]),
                        ("s3cmd", ["get", "--quiet", "--force", "--no-check-certificate" if cafile else "--no-ssl", "--host", url.split("//")[1],
                                   "--host-bucket", url.split("//")[1], "--access_key", "a", "--secret_key", "b", "s3://bkt/object", "-"])):
        path = shutil.which(name, path=f"{arguments.venv}/bin:" + os.environ["PATH"] if arguments.venv else None)
        if path:
            found[name] = [path, *words]
        else:
            print(f"no {name}", file=sys.stderr)
    return found


def cpu_of_children(process):
    """CPU seconds of a process's children so far."""
    pids = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    return sum(int(pathlib.Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) for pid in pids) / 1e9


def measure(command, environment, server):
    """Seconds, CPU seconds, the server's CPU seconds, and peak KiB of one run."""
    server_before = cpu_of_children(server)
    begun = time.monotonic()
    with open("/dev/null", "w", encoding="ascii") as null:
        process = subprocess.Popen(command, env=environment, stdout=null, stderr=subprocess.PIPE, text=True)
    message = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - begun
    if status != 0:
        raise RuntimeError(f"{command[0]}: {message[-300:]}")
    return took, usage.ru_utime + usage.ru_stime, cpu_of_children(server) - server_before, usage.ru_maxrss


def bench(arguments, folder, scheme, port, size, server):
    url = f"{scheme}://localhost:{port}" if scheme == "https" else f"http://127.0.0.1:{port}"
    cafile = str(folder / "cert") if scheme == "https" else ""
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
                   "NO_PROXY": "*", "HOME": str(folder), "AWS_EC2_METADATA_DISABLED": "true"}
    if cafile:
        environment.update(AWS_CA_BUNDLE=cafile, CURL_CA_BUNDLE=cafile, SSL_CERT_FILE=cafile)
    found = clients(arguments, folder, url, cafile, size)
    runs = {name: [] for name in found}
    for round_number in range(arguments.runs + 1):
        for name in list(found):
            try:
                result = measure(found[name], environment, server)
            except RuntimeError as error:
                print(f"{name} ({scheme}) left out: {error}", file=sys.stderr)
                del found[name], runs[name]
                continue
            if round_number:  # the first round warms the page cache
                runs[name].append(result)
    ours = statistics.median(run[1] for run in runs["paceline"])
    for name, results in runs.items():
        took, cpu, server_cpu, memory = (statistics.median(run[column] for run in results) for column in range(4))
        print(json.dumps({"bench": "s3", "scheme": scheme, "client": name, "bytes": size, "runs": arguments.runs, "gb_per_s": round(size / took / 1e9, 3),
                          "cpu_s_per_gb": round(cpu / size * 1e9, 3), "server_cpu_s_per_gb": round(server_cpu / size * 1e9, 3), "peak_mib": round(memory / 1024), "cpu_ratio_to_ours": round(cpu / ours, 2)}),
              flush=True)


def start_fake(folder, latency_ms):
    """The fake server over the folder's objects, and the environment of its clients."""
    fake = pathlib.Path(__file__).resolve().parent.parent / "fakes" / "fake_s3.py"
    process = subprocess.Popen([sys.executable, fake, "--latency", str(latency_ms), folder / "root"], stdout=subprocess.PIPE, text=True)
    port = process.stdout.readline().split()[1]
    return process, {**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1", "NO_PROXY": "*",
                     "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}"}


def measure_objects(command, environment, fifo):
    """Seconds, CPU seconds and peak KiB of one run; its output in `fifo` is discarded."""
    begun = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if fifo:
        while not fifo.exists() and process.poll() is None:
            time.sleep(0.001)
        with open(fifo, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
    message = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise RuntimeError(f"{command[0]}: {message[-300:]}")
    return time.monotonic() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def bench_objects(arguments, folder):
    (folder / "root" / "data").mkdir(parents=True)
    for index in range(arguments.objects):
        (folder / "root" / "data" / f"{index:07}").write_bytes(os.urandom(arguments.object_kib << 10))
    server, environment = start_fake(folder, arguments.latency)
    shutil.rmtree(folder / "root")  # the server has read it
    uri, channel = "s3://bkt/data/", folder / "channel"
    clients_here = {"cp -r": ([arguments.tool, "--quiet", "--recursive", "cp", uri, folder / "tree"], None),
                    "feed": ([pathlib.Path(arguments.tool).with_name("paceline-feed"), "--quiet", "--epochs", "1", uri, channel], folder / "channel_0"),
                    "stream": ([arguments.probe, "stream", uri, "-1", "1"], None)}
    runs = {name: [] for name in clients_here}
    try:
        for _ in range(arguments.runs):
            for name, (command, fifo) in clients_here.items():
                runs[name].append(measure_objects(command, environment, fifo))
                shutil.rmtree(folder / "tree", ignore_errors=True)
    finally:
        server.terminate()
        server.wait()
    base = statistics.median(run[0] for run in runs["cp -r"])
    for name, results in runs.items():
        took, cpu, memory = (statistics.median(run[column] for run in results) for column in range(3))
        print(json.dumps({"bench": "s3_objects", "client": name, "objects": arguments.objects, "object_bytes": arguments.object_kib << 10,
                          "latency_ms": arguments.latency, "runs": arguments.runs, "objects_per_s": round(arguments.objects / took),
                          "cpu_s_per_1000": round(cpu / arguments.objects * 1000, 3), "peak_mib": round(memory / 1024), "rate_to_cp": round(base / took, 2)}),
              flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--size", type=int, default=512, help="MiB")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--venv")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--objects", type=int)
    parser.add_argument("--object-kib", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0, help="ms")
    parser.add_argument("--probe", help="tests/integration/s3_probe of the build")
    arguments = parser.parse_args()
    if arguments.objects:
        if not arguments.probe:
            parser.error("--objects needs --probe")
        with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
            bench_objects(arguments, pathlib.Path(folder))
        return 0
    if not shutil.which("nginx"):
        print("no nginx to download from (package nginx-light)")
        return 77
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        (folder / "root" / "bkt").mkdir(parents=True)
        with open(folder / "root" / "bkt" / "object", "wb") as file:
            for _ in range(arguments.size):
                file.write(os.urandom(1 << 20))
        nginx, ports = start_nginx(folder)
        try:
            if not arguments.tls:
                bench(arguments, folder, "http", ports[0], arguments.size << 20, nginx)
            if not arguments.plain:
                bench(arguments, folder, "https", ports[1], arguments.size << 20, nginx)
        finally:
            nginx.terminate()
            nginx.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
