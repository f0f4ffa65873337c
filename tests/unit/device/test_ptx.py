#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Covers device/kernel_cuda.cu.
"""The kernels' arithmetic is the host's as nvcc compiles it: each result is rounded once, to nearest, and no product is drawn into a sum.

    test_ptx.py NVCC FLAG...    (the flags that the image is made with)
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
ALLOWED = {
    "fma.rn.f64": "pl_norm_",  # asked for, where the product of two floats is exact
    "rcp.approx.f32": "pl_reduce_integers",  # the first guess of nvcc's own division of 128 bits
}

nvcc, *flags = sys.argv[1:]


def run(*words):
    return subprocess.run([nvcc, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


arch = "-arch=" + min(run("--list-gpu-arch").split(), key=lambda name: int(name.removeprefix("compute_")))
ptx = run("-ptx", arch, *flags, "-o", "-", str(ROOT / "device/kernel_cuda.cu"))
operations = ("add", "sub", "mul", "mad", "fma", "div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "cvt")
kernel, seen, wrong = "", set(), []
for line in ptx.splitlines():
    entry = re.match(r"\.(?:visible )?\.?(?:entry|func).*?(\w+)\(", line)
    kernel = entry[1] if entry else kernel
    word = re.match(r"\s+(?:@!?%p\d+\s+)?([a-z]\w*(?:\.\w+)*)\s", line)
    if not word or not re.search(r"\.f(16|16x2|32|64)$", word[1]) or word[1].split(".")[0] not in operations:
        continue
    seen.add(word[1])
    exact = re.fullmatch(r"(add|sub|mul|div|sqrt)\.rn\.f(32|64)|cvt(\.rn)?\.f(16|32|64)\.\w+|cvt\.rzi\.\w+\.f(32|64)", word[1])
    if not exact and not kernel.startswith(ALLOWED.get(word[1], "no kernel")):
        wrong.append(f"{kernel}: {line.strip()}")
print(arch, *sorted(seen))
assert not wrong, "not the host's arithmetic:\n" + "\n".join(wrong[:20])
assert "div.rn.f32" in seen and "sqrt.rn.f32" in seen and "fma.rn.f64" in seen, "the kernels' arithmetic was not found in the PTX"
