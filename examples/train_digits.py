# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training on handwritten digits: each rank has its share of the pictures, the ranks
average their gradients, and all of them hold the same network at any time, to the last bit.

    ringred-run -n 4 python3 examples/train_digits.py
    RINGRED_TRANSPORT=tcp ringred-run -n 4 python3 examples/train_digits.py
    RINGRED_RANKS_PER_HOST=2 ringred-run -n 4 python3 examples/train_digits.py

The data are the 1797 digits that come with scikit-learn. The bits of the result depend on the number
of ranks, not on how they reach each other.
"""
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy: the order of its sums must not depend on its threads

import argparse
import hashlib
import sys

import numpy as np
from sklearn.datasets import load_digits

import ringred

SIZES = (64, 96, 10)        # pixels, hidden units, digits
TEST_EVERY = 5              # each fifth picture is for testing


def read_data():
    digits = load_digits()
    pictures = (digits.data / 16.0).astype(np.float32)
    order = np.random.RandomState(0).permutation(len(pictures))
    pictures, labels = pictures[order], digits.target[order]
    test = np.arange(len(pictures)) % TEST_EVERY == 0
    return pictures[~test], labels[~test], pictures[test], labels[test]


def new_network():
    """All weights lie in one vector, so that one allreduce averages all gradients."""
    shapes = [(SIZES[0], SIZES[1]), (SIZES[1],), (SIZES[1], SIZES[2]), (SIZES[2],)]
    weights = np.zeros(sum(int(np.prod(s)) for s in shapes), np.float32)
    parts = parts_of(weights, shapes)
    random = np.random.RandomState(1)
    for part in parts[0::2]:
        part[...] = random.standard_normal(part.shape) * np.sqrt(2.0 / part.shape[0])
    return weights, shapes


def parts_of(vector, shapes):
    parts, at = [], 0
    for shape in shapes:
        count = int(np.prod(shape))
        parts.append(vector[at:at + count].reshape(shape))
        at += count
    return parts


def forward(parts, pictures):
    hidden = np.maximum(pictures @ parts[0] + parts[1], 0)
    return hidden, hidden @ parts[2] + parts[3]


def gradient_into(gradient, parts, pictures, labels):
    """The gradient of the mean cross-entropy of these pictures; returns that mean."""
    hidden, scores = forward(parts, pictures)
    scores -= scores.max(axis=1, keepdims=True)
    share = np.exp(scores)
    share /= share.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(share[rows, labels]).mean()
    share[rows, labels] -= 1
    share /= np.float32(len(labels))
    back = (share @ parts[2].T) * (hidden > 0)
    gradient[0][...] = pictures.T @ back
    gradient[1][...] = back.sum(axis=0)
    gradient[2][...] = hidden.T @ share
    gradient[3][...] = share.sum(axis=0)
    return float(loss)


def train(comm, options, pictures, labels):
    weights, shapes = new_network()
    comm.broadcast(weights, root=0)
    parts = parts_of(weights, shapes)
    gradient = comm.empty(weights.shape, np.float32)
    pieces = parts_of(gradient, shapes)
    speed = np.zeros_like(weights)
    batch = options.batch // comm.size
    random = np.random.RandomState(2)  # the same shuffle on every rank
    for epoch in range(options.epochs):
        order = random.permutation(len(labels))
        for at in range(0, len(order) - options.batch + 1, options.batch):
            mine = order[at + comm.rank * batch:at + (comm.rank + 1) * batch]
            gradient_into(pieces, parts, pictures[mine], labels[mine])
            comm.allreduce(gradient, op="avg")
            speed *= np.float32(0.9)
            speed -= np.float32(options.rate) * gradient
            weights += speed
    return weights, parts


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--epochs", type=int, default=25)
    a.add_argument("--batch", type=int, default=64, help="pictures per step, of all ranks together")
    a.add_argument("--rate", type=float, default=0.05)
    a.add_argument("--accuracy", type=float, default=0.95, help="less than this is a failure")
    options = a.parse_args()
    with ringred.init() as comm:
        pictures, labels, test_pictures, test_labels = read_data()
        weights, parts = train(comm, options, pictures, labels)
        guess = forward(parts, test_pictures)[1].argmax(axis=1)
        accuracy = float((guess == test_labels).mean())
        digest = hashlib.sha256(weights.tobytes()).hexdigest()[:16]
        sys.stdout.write("rank %d of %d: accuracy %.4f, weights %s\n"
                         % (comm.rank, comm.size, accuracy, digest))
        comm.barrier()
    return 0 if accuracy > options.accuracy else 1


if __name__ == "__main__":
    sys.exit(main())
