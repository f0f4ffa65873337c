#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compute docs/internals/scaling.md: the cost model of collectives/algorithms/algorithm.h, fitted to measurements and evaluated for 8 to 4,096 hosts.

    scaling.py GRADIENTS_DIR > docs/internals/scaling.md

GRADIENTS_DIR holds NAME.counts.json, the elements of each gradient in the order of the backward pass.
"""
import json
import math
import pathlib
import sys

# Measured with paceline-bench between hosts in network namespaces, links of 1 Gbit/s, on a machine busy with other work.
LATENCY_S = 25e-6  # 64 bytes between 2 hosts: 24 to 31 us
# Share of the line rate, float32, 64 MiB: 2 hosts took 575 ms while the line alone needs 537 (0.93), 4 hosts 876 ms instead of 805 (0.92).
SHARE = 0.92

# Assumed.
GBPS = 25.0
GPUS = 4
BATCH = 64
INSIDE_BYTES_PER_S = 10e9  # between the GPUs of a host
INSIDE_LATENCY_S = 20e-6
BACKWARD = 2 / 3  # share of a step without communication
MODELS = [  # file, name, images per second of one GPU (an assumption: about what a P100 did), published share at 512 GPUs
    ("resnet101", "ResNet-101", 132, 0.90),
    ("inception_v3", "Inception V3", 142, 0.90),
    ("vgg16", "VGG-16", 154, 0.68),
    ("googlenet_v1", "GoogLeNet", 480, None),
    ("vgg19", "VGG-19", 125, None),
]
HOSTS = [8, 32, 128, 512, 1024, 4096]


def between_s(hosts, size_bytes):
    """The cheapest of ring, halving and doubling; see collectives/algorithms/algorithm.h."""
    wire = size_bytes / (GBPS / 8 * 1e9 * SHARE)
    rounds = math.ceil(math.log2(hosts))
    least = 2 * (hosts - 1) / hosts * wire
    return min(2 * (hosts - 1) * LATENCY_S + least, 2 * rounds * LATENCY_S + least / 0.86, rounds * (LATENCY_S + wire))


def allreduce_s(hosts, size_bytes):
    inside = 2 * (GPUS - 1) / GPUS * size_bytes / INSIDE_BYTES_PER_S
    # Chunks overlap inside and between; a small one pays for both.
    return INSIDE_LATENCY_S + max(inside, between_s(hosts, size_bytes))


def efficiency(hosts, counts, images_per_s, merge):
    compute = BATCH / images_per_s
    begin = compute * (1 - BACKWARD)
    free = 0.0
    for first in range(0, len(counts), merge):
        members = counts[first:first + merge]
        ready = begin + compute * BACKWARD * min(len(counts), first + merge) / len(counts)
        free = max(free, ready) + allreduce_s(hosts, 4 * sum(members))
    return compute / max(compute, free)


def main():
    folder = pathlib.Path(sys.argv[1])
    print(f"""# Scaling, computed

Nothing on this page was run on more than four hosts. It is arithmetic: `tests/bench/scaling.py` computes it from a cost
model and a few measurements. Read it as what the algorithms allow, not as a result.

**Model.** An allreduce of B bytes between H hosts costs the least of: ring, 2(H-1)a + 2(H-1)/H B b; halving, 2 log2(H) a + 2(H-1)/H B b / 0.86;
doubling, log2(H) (a + B b). a is the time of a small message, b the time a byte takes on a host's link. Inside a host,
{GPUS} GPUs pass 2({GPUS}-1)/{GPUS} B at {INSIDE_BYTES_PER_S / 1e9:.0f} GB/s, overlapped with the exchange between hosts.

**Measured** (hosts in network namespaces, 1 Gbit/s links, a machine busy with other work): a = {LATENCY_S * 1e6:.0f} us; {SHARE:.2f} of the line rate,
what two hosts (0.93) and four (0.92) reached with 64 MiB; one TCP stream carries 0.93 of it there. `tests/bench/hosts.sh` measures all of this again.

**Assumed.** {GBPS:.0f} Gbit/s per host and the same latency and share of the line rate as measured; no congestion and no stragglers;
batch {BATCH} per GPU; {", ".join(f"{name} {speed}" for _, name, speed, _ in MODELS)} images/s on one GPU; the backward pass is two thirds of a step and emits
gradients evenly by their number, last layer first; float32 on the wire; the exchange takes no GPU time. Merge scope k joins k
neighbouring gradients into one operation.

Efficiency = images/s of all GPUs / (images/s of one GPU x number of GPUs).
""")
    for merge in (1, 32):
        print(f"\n## Merge scope {merge}\n")
        print("| model | MB | " + " | ".join(str(h) for h in HOSTS) + " | Horovod, 512 GPUs, published |")
        print("|---|---|" + "---|" * (len(HOSTS) + 1))
        for name, title, speed, published in MODELS:
            counts = json.loads((folder / f"{name}.counts.json").read_text())
            cells = [f"{100 * efficiency(h, counts, speed, merge):.0f} %" for h in HOSTS]
            print(f"| {title} | {4 * sum(counts) / 1e6:.0f} | " + " | ".join(cells) + f" | {f'{100 * published:.0f} %' if published else '-'} |")
    print("""
## What it says

* ResNet-101, Inception V3 and GoogLeNet hide their communication behind the backward pass at every size, whatever the merge scope. The
  model has no stragglers, no jitter and no congestion; these cost real jobs of this size their last 10 %.
* VGG is bound by bytes: its gradients take longer than its backward pass at this link rate, whatever the number of hosts. A 16-bit wire halves that.
* With merge scope 32 VGG's first operations carry nearly all bytes and become ready late, so merging can cost there what it gains for other models.
* The published column comes from other hardware and another program; the difference says nothing about either.""")


main()
