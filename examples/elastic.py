# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training that outlives its workers: one is killed in the middle of a step, the others go on without it;
it comes back, and they take it in between two steps.

    python3 examples/elastic.py --ranks 4 --steps 120 --lose 2 --at 50 --back 80

Started like this, the program starts the workers itself, kills none of them (worker 2 does that), starts another one when
one has gone, and in the end works out the same training alone, step by step with as many shares as there were workers: all
weights must have the same bits. The workers' folder takes the place of whatever tells processes of each other elsewhere.
"""
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy: the order of its sums must not depend on its threads

import argparse
import hashlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import ringred

PIXELS, CLASSES, BATCH = 50, 7, 420     # a batch that 1 to 7 workers can share


class Folder:
    """Names with bytes, which all workers see: a store for ringred.init(), and where newcomers knock."""

    def __init__(self, path):
        self.path = path

    def set(self, name, value):
        part = os.path.join(self.path, "%s.%d" % (name, os.getpid()))
        with open(part, "wb") as f:
            f.write(value)
        os.rename(part, os.path.join(self.path, name))

    def has(self, name):
        return os.path.exists(os.path.join(self.path, name))

    def get(self, name):
        while not self.has(name):
            time.sleep(0.01)
        with open(os.path.join(self.path, name), "rb") as f:
            return f.read()

    def take(self, name):
        value = self.get(name)
        os.unlink(os.path.join(self.path, name))
        return value


# ---- the model: what one worker of n does in a step ----

def read_data():
    random = np.random.RandomState(0)
    pictures = random.standard_normal((6000, PIXELS)).astype(np.float32)
    labels = (pictures @ random.standard_normal((PIXELS, CLASSES)).astype(np.float32)).argmax(axis=1)
    return pictures, labels


def gradient_of(weights, data, step, rank, size):
    """The gradient of this worker's share of the step's batch."""
    pictures, labels = data
    batch = np.random.RandomState(step).permutation(len(labels))[:BATCH]
    mine = batch[rank * BATCH // size:(rank + 1) * BATCH // size]
    scores = pictures[mine] @ weights
    scores -= scores.max(axis=1, keepdims=True)
    share = np.exp(scores)
    share /= share.sum(axis=1, keepdims=True)
    share[np.arange(len(mine)), labels[mine]] -= 1
    return pictures[mine].T @ share / np.float32(len(mine))


def apply(weights, speed, gradient):
    speed *= np.float32(0.9)
    speed -= np.float32(0.1) * gradient
    weights += speed


# ---- a worker ----

class Training:
    """All that a worker has to have to go on: the same on all of them after each step."""

    def __init__(self):
        self.weights = np.zeros((PIXELS, CLASSES), np.float32)
        self.speed = np.zeros_like(self.weights)
        self.sizes = []                 # of each step that has been made: how many workers made it

    @property
    def step(self):
        return len(self.sizes)

    def agree(self, comm):
        """A step may have been the last for some, and not have ended for others: whoever is furthest tells the rest."""
        steps = comm.allgather_object(self.step)
        furthest = steps.index(max(steps))
        self.sizes = comm.broadcast_object(self.sizes, furthest)
        comm.broadcast(self.weights, furthest)
        comm.broadcast(self.speed, furthest)


def admit(comm, folder, options, step):
    """Between two steps: is somebody at the door? The communicator to go on with."""
    knocks = np.zeros(1, np.int32)
    if comm.rank == 0:
        if options.lose is not None and step == options.back and comm.size < options.ranks:
            folder.get("knock")         # so that it is back in the step that was asked for
        knocks[0] = folder.has("knock") and (options.lose is None or step >= options.back)
    comm.broadcast(knocks, 0)
    if not knocks[0]:
        return comm
    invitation = None
    if comm.rank == 0:
        folder.take("knock")
        invitation = ringred.unique_id()
        folder.set("invitation", pickle.dumps((invitation, comm.size)))
    try:
        larger = comm.grow(invitation, comm.size + 1)
    except ringred.TimeoutError:        # it went away again
        return comm
    comm.destroy()
    return larger


def go_on_without(comm):
    smaller = comm.shrink()
    try:
        comm.destroy()
    except ringred.Error:
        pass                            # that it is broken is why we are here
    return smaller


def join(folder, options):
    if options.rank is not None:
        return ringred.init(rank=options.rank, size=options.ranks, store=folder, init_timeout=30)
    folder.set("knock", b"")
    invitation, rank = pickle.loads(folder.take("invitation"))
    return ringred.init(rank=rank, size=rank + 1, id=invitation, init_timeout=30)


def work(folder, options):
    data, training, agreed = read_data(), Training(), None
    comm = join(folder, options)
    while training.step < options.steps:
        try:
            if agreed is not comm:
                training.agree(comm)
                agreed = comm
            comm = admit(comm, folder, options, training.step)
            if agreed is not comm:
                continue
            if options.rank is not None and options.rank == options.lose and training.step == options.at:
                os.kill(os.getpid(), signal.SIGKILL)
            gradient = gradient_of(training.weights, data, training.step, comm.rank, comm.size)
            comm.allreduce(gradient, op="avg")
        except (ringred.PeerLostError, ringred.AbortedError):
            comm = go_on_without(comm)
            continue
        apply(training.weights, training.speed, gradient)
        training.sizes.append(comm.size)
    folder.set("result-%d" % comm.rank, pickle.dumps((training.sizes, training.weights)))
    comm.destroy()


# ---- whoever starts them ----

def replay(sizes):
    """The same training, alone: the shares of a step are averaged as the library does (docs/NUMBERS.md)."""
    data, training = read_data(), Training()
    for step, size in enumerate(sizes):
        shares = [gradient_of(training.weights, data, step, r, size) for r in range(size)]
        spare = size - (1 << (size.bit_length() - 1))
        shares = [shares[2 * i] + shares[2 * i + 1] for i in range(spare)] + shares[2 * spare:]
        while len(shares) > 1:
            shares = [shares[2 * i] + shares[2 * i + 1] for i in range(len(shares) // 2)]
        apply(training.weights, training.speed, shares[0] / np.float32(size))
    return training.weights


def stretches(sizes):
    """[(4, 50), (3, 30), ...]: how many workers made how many steps in turn."""
    found = []
    for size in sizes:
        if found and found[-1][0] == size:
            found[-1][1] += 1
        else:
            found.append([size, 1])
    return found


def supervise(options):
    with tempfile.TemporaryDirectory() as path:
        folder, options.folder = Folder(path), path

        def start(*arguments):
            return subprocess.Popen([sys.executable, os.path.abspath(__file__), "--folder", path, *sys.argv[1:], *arguments])

        workers = [start("--rank", str(r)) for r in range(options.ranks)]
        if options.lose is not None:
            if workers[options.lose].wait() != -signal.SIGKILL:
                raise SystemExit("worker %d was to be killed at step %d" % (options.lose, options.at))
            workers[options.lose] = start()
        failed = [w.wait() for w in workers]
        if any(failed):
            raise SystemExit("workers ended with %s" % failed)
        results = [pickle.loads(folder.get("result-%d" % r)) for r in range(options.ranks)]
    sizes, weights = results[0]
    same = all(s == sizes and w.tobytes() == weights.tobytes() for s, w in results)
    alone = replay(sizes).tobytes() == weights.tobytes()
    print("workers x steps: %s; weights %s; %s on all workers, %s as worked out alone"
          % (", ".join("%d x %d" % tuple(s) for s in stretches(sizes)), hashlib.sha256(weights.tobytes()).hexdigest()[:16],
             "the same" if same else "NOT the same", "the same" if alone else "NOT the same"))
    return 0 if same and alone else 1


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--ranks", type=int, default=4)
    a.add_argument("--steps", type=int, default=120)
    a.add_argument("--lose", type=int, help="this worker is killed")
    a.add_argument("--at", type=int, default=50, help="in this step")
    a.add_argument("--back", type=int, default=80, help="and is back before this one")
    a.add_argument("--rank", type=int, help=argparse.SUPPRESS)      # what the program tells its workers
    a.add_argument("--folder", help=argparse.SUPPRESS)
    options = a.parse_args()
    if options.folder is None:
        return supervise(options)
    work(Folder(options.folder), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
