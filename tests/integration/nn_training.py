#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training in device memory, without a GPU: the examples on the fake driver, whose devices take their time and whose layers are OpenBLAS's on a
stream. Everything that is not a layer (plan, exchange, optimizer, checkpoints, saving) is the product's, so the weights are the CPU's bit for bit
if every step waits for what it uses. With the word `full`: on the other numbers of ranks, and going on in the other directions.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cifar10  # noqa: E402  (its pictures)

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
FAKES = BUILD / "tests/fakes"
PLUGIN = FAKES / "nn_cuda/libpaceline-nn-cuda.so"
FULL = sys.argv[1:] == ["full"]
ENVIRONMENT = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
PROGRAM_WORDS = {"mnist": ["--max-steps", 6, "--batch-size", 10, "--warmup-epochs", 0], "cifar10": ["--max-steps", 3, "--batch-size", 8, "--warmup-steps", 0]}


class Examples:
    def __init__(self, work):
        self.work = work
        self.data = {"mnist": work / "digits", "cifar10": work / "pictures"}
        for name in self.data:
            shutil.copy(BUILD / "libexec/paceline" / name, work)
        shutil.copy(PLUGIN, work)
        subprocess.run([BUILD / "libexec/paceline/make_digits", self.data["mnist"], "150", "40", "3"], check=True)
        cifar10.make_pictures(self.data["cifar10"])

    def run(self, program, ranks, *words, fake="devices=2", nccl=False, check=True):
        command = [self.work / program, "--data", self.data[program], *PROGRAM_WORDS[program], *words]
        if ranks > 1:
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks, *command]
        environment = dict(ENVIRONMENT, FAKE_CUDA=fake + ",delay_us=100,leaks", LD_LIBRARY_PATH=f"{FAKES}/{'nccl' if nccl else 'no_nccl'}:{FAKES}")
        done = subprocess.run([str(word) for word in command], env=environment, text=True, timeout=240, stdin=subprocess.DEVNULL, capture_output=True)
        print("$", *command, done.stdout, done.stderr, sep="\n" if done.returncode else " ")
        assert not check or done.returncode == 0, f"exit status {done.returncode}"
        return done

    def model(self, name, program, ranks, *words, **more):
        """The bytes of the model that such a run ends with."""
        done = self.run(program, ranks, *words, "--model-dir", self.work / name, **more)
        assert "on the CPU" not in done.stderr, done.stderr
        return (self.work / name / "model.safetensors").read_bytes()


def same_bits(examples):
    """On one rank and two, on devices of their own and on one, with and without NCCL, as a plan and as named tensors."""
    for program, ranks in (("mnist", 1), ("cifar10", 2)) if FULL else (("mnist", 2), ("cifar10", 1)):
        wanted = examples.model("cpu", program, ranks, "--device", "cpu")
        ways = [(["--device", "cuda"], {})]
        if ranks == 2:
            ways += [(["--device", "auto"], {"nccl": True}), (["--device", "cuda:1"], {})]
        if program == "mnist":
            ways += [(["--named", "1", "--device", "cuda"], {})]
        for words, more in ways:
            assert examples.model("device", program, ranks, *words, **more) == wanted, (program, ranks, words, more)


def goes_on(examples):
    """Half of the steps on one kind of memory and the others on the other: checkpoints fit both."""
    wanted = examples.model("whole", "mnist", 2, "--device", "cuda")
    for first, then in (("cuda", "cuda"), ("cpu", "cuda")) if FULL else (("cuda", "cpu"),):
        folder = examples.work / f"{first}-{then}"
        words = ["--checkpoint-dir", folder, "--checkpoint-steps", "2"]
        examples.model("half", "mnist", 2, "--device", first, *words, "--max-steps", "4")
        assert examples.model("rest", "mnist", 2, "--device", then, *words) == wanted, (first, then)


def says_what_is_wrong(examples):
    done = examples.run("mnist", 2, "--device", "auto", fake="devices=1", check=False)
    assert done.returncode != 0 and "2 ranks of this host would share 1 GPU" in done.stderr, done.stderr
    done = examples.run("mnist", 1, "--device", "cuda:2", check=False)
    assert done.returncode == 1 and "asks for GPU 2, and local rank 0 sees 2" in done.stderr, done.stderr
    done = examples.run("mnist", 1, "--device", "cuda", fake="devices=1,launch_error=4", check=False)
    assert done.returncode == 1 and "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    done = examples.run("mnist", 1, "--device", "auto", fake="no_device")
    assert done.stderr.count("training on the CPU: no GPU is used") == 1, done.stderr


def main():
    if not PLUGIN.exists() or not shutil.which("mpirun"):
        print("the fake driver or Open MPI is missing")
        return 77
    with tempfile.TemporaryDirectory(prefix="paceline-nn-") as name:
        examples = Examples(pathlib.Path(name))
        same_bits(examples)
        goes_on(examples)
        if not FULL:
            says_what_is_wrong(examples)
    return 0


if __name__ == "__main__":
    sys.exit(main())
