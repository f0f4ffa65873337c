# SPDX-License-Identifier: Apache-2.0
"""What a rank does in its second step, for tests of how a job ends. `HOW` is raise, kill, or wait, which all ranks do; else only the rank `WHO`."""
import os
import signal
import sys
import time

steps = 0
how = os.environ.get("HOW")
rank = int(os.environ.get("RANK", -1))


def await_signal():
    """A handler that the framework has set is called, and the program goes on then."""
    handler, came = signal.getsignal(signal.SIGTERM), []
    if callable(handler):
        signal.signal(signal.SIGTERM, lambda *words: (came.append(words), handler(*words)))
    print(f"rank {rank} waits", flush=True)
    while not came:
        time.sleep(0.05)


def step(*_, **__):
    global steps
    steps += 1
    if steps != 3:
        return
    if how == "wait":
        await_signal()
    elif rank == int(os.environ.get("WHO", -1)):
        if how == "raise":
            raise ValueError("bad data")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


if how and "torch" in sys.modules:
    sys.modules["torch"].nn.modules.module.register_module_forward_pre_hook(step)
