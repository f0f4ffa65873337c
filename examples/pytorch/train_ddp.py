# SPDX-License-Identifier: Apache-2.0
"""Trains a classifier with DistributedDataParallel, saves at SIGTERM, and resumes from /opt/ml/checkpoints.

It imports nothing of Paceline: torchrun and MPI start it alike, on one host and on several.
"""
import argparse
import os
import signal

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch.nn.parallel import DistributedDataParallel

stop_asked = False


def ask_to_stop(number, frame):
    """SageMaker sends SIGTERM 120 s before it takes the machines away. The step that runs is finished first."""
    global stop_asked
    stop_asked = True


def all_agree_to_stop(device):
    """The signal may reach one rank a step later than another. All ranks have to leave after the same step."""
    asked = torch.tensor(float(stop_asked), device=device)
    dist.all_reduce(asked, dist.ReduceOp.MAX)
    return asked.item() > 0


def save(path, content):
    """Written beside its place and renamed: a process that is killed meanwhile leaves the checkpoint before it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save(content, path + ".new")
    os.replace(path + ".new", path)


def load(path, model, optimizer, device):
    """Rank 0 reads the checkpoint, and all ranks get it: only its host needs the file. Returns the epoch and its first step."""
    found = [torch.load(path, map_location="cpu") if dist.get_rank() == 0 and os.path.exists(path) else None]
    dist.broadcast_object_list(found, src=0, device=device)
    if found[0] is None:
        return 1, 0
    model.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return found[0]["epoch"], found[0]["step"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--checkpoint", default="/opt/ml/checkpoints/ddp.pt")
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "/opt/ml/model"))
    options = parser.parse_args()

    signal.signal(signal.SIGTERM, ask_to_stop)
    has_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if has_gpu else "gloo")  # address and ranks are in the environment
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)

    torch.manual_seed(1)  # the same data on every rank; a program of yours reads SM_CHANNEL_TRAINING here
    data = torch.randn(4096, 16)
    labels = (data @ torch.randn(16, 4)).argmax(1)
    net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(device)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), options.learning_rate, momentum=0.9)
    epoch, step = load(options.checkpoint, net, optimizer, device)
    print(f"rank {rank} of {world} begins at epoch {epoch} step {step}", flush=True)

    while epoch <= options.epochs:
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))[rank::world]
        batches = order.split(options.batch_size)
        while step < len(batches):
            inputs, wanted = data[batches[step]].to(device), labels[batches[step]].to(device)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs), wanted)
            loss.backward()
            optimizer.step()
            step += 1
            if all_agree_to_stop(device):
                if rank == 0:
                    save(options.checkpoint, {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "step": step})
                    print(f"stopped after epoch {epoch} step {step}, as asked; {options.checkpoint} has the checkpoint", flush=True)
                return
        if rank == 0:
            print(f"epoch={epoch} loss={loss.item():.4f}", flush=True)
            save(options.checkpoint, {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1, "step": 0})
        epoch, step = epoch + 1, 0
    if rank == 0:
        save(os.path.join(options.model_dir, "model.pt"), net.state_dict())


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
