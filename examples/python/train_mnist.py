# SPDX-License-Identifier: Apache-2.0
"""Trains a digit classifier with torch on several ranks, in the form in which users of SageMaker write programs.

    paceline train                                   with sagemaker_program=train_mnist.py
    mpirun -n 2 python3 train_mnist.py --data DIR    by hand

The steps are those of every data-parallel tutorial: init, shard, scale the rate, broadcast, average the gradients, save on rank 0.
"""

import argparse
import gzip
import os

import numpy
import torch
import torch.nn.functional as functional

import paceline


def read_idx(directory, kind, what):
    """An IDX file, gzip or plain, as a numpy array."""
    for ending, opener in ((".gz", gzip.open), ("", open)):
        path = os.path.join(directory, f"{kind}-{what}{ending}")
        if os.path.exists(path):
            with opener(path, "rb") as file:
                data = file.read()
            dims = data[3]
            shape = numpy.frombuffer(data, ">u4", dims, 4)
            return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * dims).reshape(shape)
    raise FileNotFoundError(f"{directory}: neither {kind}-{what}.gz nor {kind}-{what}")


def load(directory, kind, device):
    images = torch.from_numpy(read_idx(directory, kind, "images-idx3-ubyte").astype(numpy.float32) / 255).unsqueeze(1)
    labels = torch.from_numpy(read_idx(directory, kind, "labels-idx1-ubyte").astype(numpy.int64))
    return images.to(device), labels.to(device)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 5)
        self.conv2 = torch.nn.Conv2d(16, 32, 5)
        self.dense1 = torch.nn.Linear(512, 64)
        self.dense2 = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.dense1(x.flatten(1)))
        return self.dense2(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--learning-rate", type=float, default=0.05, help="of one rank; multiplied by their number")
    parser.add_argument("--decay", type=float, default=0.9, help="of the rate, after each epoch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", default=os.environ.get("SM_CHANNEL_TRAINING"))
    parser.add_argument("--test", default=os.environ.get("SM_CHANNEL_TESTING"))
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "."))
    options = parser.parse_args()

    paceline.init()
    device = torch.device("cuda", paceline.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(options.seed + paceline.rank())  # different on every rank; the broadcast below makes the weights equal
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // paceline.local_size()))
    images, labels = load(options.data, "train", device)
    model = Network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate * paceline.size(), momentum=0.5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, options.decay)
    paceline.broadcast_parameters(model.state_dict(), root_rank=0)

    for epoch in range(1, options.epochs + 1):
        order = numpy.random.default_rng([options.seed, epoch]).permutation(len(labels))  # the same on every rank
        steps = len(order) // (options.batch_size * paceline.size())
        mine = order[paceline.rank()::paceline.size()]
        total = 0.0
        for step in range(steps):
            batch = torch.from_numpy(mine[step * options.batch_size:(step + 1) * options.batch_size]).to(device)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            paceline.grouped_allreduce_([parameter.grad for parameter in model.parameters()])
            optimizer.step()
            total += loss.item()
        scheduler.step()
        mean = paceline.allreduce(numpy.array([total / steps]), name="loss")[0]
        if paceline.rank() == 0:
            print(f"epoch={epoch} step={steps * epoch} train_loss={mean:.4f}", flush=True)

    test_images, test_labels = load(options.test or options.data, "t10k", device)
    part = slice(paceline.rank(), None, paceline.size())
    with torch.no_grad():
        right = (model(test_images[part]).argmax(1) == test_labels[part]).sum().item()
    right, count = paceline.allreduce(numpy.array([right, len(test_labels[part])]), name="right", op=paceline.Sum)
    if paceline.rank() == 0:
        print(f"test_accuracy={right / count:.4f}", flush=True)
        os.makedirs(options.model_dir, exist_ok=True)
        torch.save(model.state_dict(), os.path.join(options.model_dir, "model.pt"))
    paceline.shutdown()


if __name__ == "__main__":
    main()
