#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports the steps and figures of tests/gpu.sh so far: the steps, the figures next to their goals as in docs/measurements.md, and all of it as JSON.

    gpu_report.py WORK JSON DEVICE [LEFT_OUT...]

WORK holds steps.tsv (one step per line: name, result, seconds, last output), NAME.end for a step that failed (its last lines) and the steps'
figures, *.json with one object per line; the last line may be incomplete. Exits 1 if a step failed.
"""
import datetime
import json
import pathlib
import sys


def read_steps(work):
    rows = [line.split("\t", 3) for line in (work / "steps.tsv").read_bytes().decode(errors="replace").split("\n")[:-1]]
    steps = [{"name": name, "result": result, "seconds": int(seconds), "detail": detail} for name, result, seconds, detail in rows]
    for step in steps:
        end = work / f"{step['name']}.end"
        if end.exists():
            step["log"] = end.read_text(errors="replace").splitlines()
    return steps


def read_figures(work, report):
    found = {}
    for file in sorted(set(work.glob("*.json")) - {report}):
        found[file.stem] = []
        for line in file.read_text(errors="replace").splitlines():
            try:
                found[file.stem] += [json.loads(line)] if line.startswith("{") else []
            except ValueError:
                pass  # the line is incomplete
    return found


def number(rows, key, limit, form):
    """The figure of that name as text, and whether it is below the limit."""
    values = [row[key] for row in rows if key in row]
    return (form.format(values[0]), limit is None or values[0] < limit) if values else (None, None)


def least(rows, whole):
    """The kernel that is slowest against a copy of as many bytes, which decides, and the one furthest below the ceiling, which no copy of 4 MiB reaches
    either. The goal can only be met if `whole`: all kernels were measured."""
    if not rows:
        return None, None
    behind, far = (min(rows, key=lambda row: row[key]) for key in ("of_copy", "of_peak"))
    met = False if behind["of_copy"] < 0.9 else True if whole else None
    return f"at least {behind['of_copy']:.0%} of it ({behind['case']}), {far['of_peak']:.0%} of the ceiling ({far['case']})", met


def rates(rows, model):
    rows = [row for row in rows if row["model"] == model]
    return "; ".join(f"{row['batch']} {row['precision']}: {row['ours']} / {row['torch']} = {row['ratio']:.2f}" for row in rows) or None


def measured(figures, passed):
    """(what, goal, figure or None, whether the goal is met or None), as in docs/measurements.md; `passed` names the steps that ran to their end."""
    bench, step, torch = (figures.get(name, []) for name in ("bench_device", "step_device", "torch"))
    whole = "kernels" in passed
    kernels = [row for row in bench if "of_peak" in row]
    moves = [row for row in kernels if row["case"].startswith(("pack", "unpack", "cast", "scale"))]
    hidden = [row for row in figures.get("synthetic", []) if row["ranks"] > 1]
    shared = [row for row in figures.get("examples", []) if row["ranks"] > 1]
    apart = any(abs(row["accuracy"] - row["cpu"]) > 0.02 for row in shared)
    horovod = figures.get("horovod", [])
    pairs = [row for row in horovod if row.get("ranks") == 2]
    alone = [{"of_copy": row["copy_ms"] / row["whole_ms"]} for row in horovod if "whole_ms" in row and row["ranks"] == 1]
    added = {row["async_completion"]: row for row in horovod if "added" in row}
    return [
        ("copy, device to device, read plus written", "the ceiling", number(bench, "peak_gb_s", None, "{:.0f} GB/s")[0], None),
        ("pack, unpack, cast, scale, buckets of 4, 16, 64 and 256 MiB", "90 % of a copy of as many bytes", *least([row for row in moves if "MiB" in row["case"]], whole)),
        ("pack and unpack ResNet-50's 161 tensors in one launch", "the same", *least([row for row in moves if "MiB" not in row["case"]], whole)),
        ("AdamW, fused, float32 and bfloat16 gradients", "the same", *least([row for row in kernels if row["case"].startswith("AdamW")], whole)),
        ("calls of a step on the CPU, 161 tensors", "20 us", *number(step, "host_us", 20, "{:.1f} us")),
        ("one rank against a bare loop", "1 %", *number(step, "overhead", 0.01, "{:+.2%}")),
        ("ResNet-50's gradients, two processes on one GPU: communication hidden by a backward pass of 20 ms", "",
         "; ".join(f"{row['work']}: {row['overlap']:.0%}" for row in hidden) or None, None),
        ("MNIST, two and four processes on one GPU", "the CPU's accuracy",
         "; ".join(f"{row['ranks']}: {row['accuracy']:.3f}, CPU {row['cpu']:.3f}" for row in shared) or None,
         False if apart else True if {row["ranks"] for row in shared} == {2, 4} else None),
        ("Horovod's Python, 64 MiB in 16 tensors, two processes on one GPU", "1.5 ms", *number(pairs, "sixteen_ms", 1.5, "{:.2f} ms")),
        ("the same through host memory", "", number(pairs, "through_host_ms", None, "{:.2f} ms")[0], None),
        ("one tensor of 64 MiB, one rank, against a copy on the device", "90 %", f"{alone[0]['of_copy']:.0%}" if alone else None,
         alone[0]["of_copy"] >= 0.9 if alone else None),
        ("a training step with DistributedOptimizer, one rank", "3 % longer", *number([added["0"]] if "0" in added else [], "added", 0.03, "{:+.1%}")),
        ("the same with HOROVOD_ENABLE_ASYNC_COMPLETION=1", "1 % longer", *number([added["1"]] if "1" in added else [], "added", 0.01, "{:+.1%}")),
        ("MNIST, images/s, ours / PyTorch's, batch 64 and 1024", "", rates(torch, "mnist"), None),
        ("CIFAR-10, images/s, ours / PyTorch's, batch 64 and 1024", "", rates(torch, "cifar10"), None),
    ]


def main():
    work, report, device, left_out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    steps, figures = read_steps(work), read_figures(work, report)
    table = measured(figures, [step["name"] for step in steps if step["result"] == "passed"])
    print(f"{device}, {datetime.date.today()}")
    for step in steps:
        print(f"{step['name']:<12} {step['result']:<8} {step['seconds']:5d} s  {step['detail']}")
    for what in left_out:
        print("left out    ", what)
    print("\n| what | goal | figure | met |\n|---|---|---|---|")
    for what, goal, figure, met in table:
        print(f"| {what} | {goal} | {figure or 'not measured'} | {'' if met is None else 'yes' if met else 'NO'} |")
    print(f"\nfigures in {report}")
    whole = {"device": device, "date": str(datetime.date.today()), "steps": steps, "left_out": left_out,
             "table": [dict(zip(("what", "goal", "figure", "met"), row)) for row in table], "figures": figures}
    new = report.with_name(report.name + ".new")  # the old report stays whole if this is interrupted
    new.write_text(json.dumps(whole, indent=1) + "\n")
    new.rename(report)
    return any(step["result"] == "FAILED" for step in steps)


if __name__ == "__main__":
    sys.exit(main())
