#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Promise: 200 hostile connections a second to where a job meets, and to where its ranks listen, let nobody join and cost nothing but
what the kernel takes: a job runs at 0.9 at least of the speed that it has while the same connections go to somebody else's listener.

    hostile.py BUILD [SECONDS, 20]

Connections say nothing, noise, half a greeting, a byte now and then, or what another listener of the job has just said."""
import mmap
import os
import random
import signal
import socket
import statistics
import struct
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RATE, RANKS, COUNT, WINDOW_S = 200, 4, 1 << 18, 0.5
OPEN_MOST = 60          # silent connections that are kept open


class Board:
    """What the processes share: numbers by place."""

    def __init__(self, places):
        self.room = mmap.mmap(-1, 8 * places)

    def __getitem__(self, i):
        return struct.unpack_from("q", self.room, 8 * i)[0]

    def __setitem__(self, i, value):
        struct.pack_into("q", self.room, 8 * i, value)


PORT, MADE, STOP, CALLS = 0, 1, 2, 3    # places; behind MADE + 2, the calls of each rank


def child(function, *arguments):
    pid = os.fork()
    if pid:
        return pid
    try:
        function(*arguments)
        os._exit(0)
    except BaseException as failure:
        sys.stderr.write("%s: %s\n" % (function.__name__, failure))
        os._exit(1)


def attack(board, words):
    """Goes on until it is killed; to whatever port the board says."""
    chance, kept, at = random.Random(1), [], time.monotonic()
    while True:
        at += 1 / RATE
        time.sleep(max(0.0, at - time.monotonic()))
        if not board[PORT]:
            continue
        s = socket.socket()
        s.setblocking(False)
        kept.append(s)
        try:
            s.connect(("127.0.0.1", board[PORT]))
        except BlockingIOError:
            pass
        except OSError:
            continue
        for other in kept[-3:]:
            try:
                other.send(chance.choice([b"", b"\x00", os.urandom(64), words[:32], words, words + os.urandom(88)]))
            except OSError:
                pass
        if chance.random() < 0.5 or len(kept) > OPEN_MOST:
            kept.pop(chance.randrange(len(kept))).close()


def accept(listener):
    kept = []
    while True:
        kept.append(listener.accept()[0])
        if len(kept) > OPEN_MOST:
            kept.pop(0).close()


def sum_up(rank, root, board):
    import numpy
    import ringred
    comm = ringred.init(rank=rank, size=RANKS, root=root, key="nobody outside knows this", transport="tcp", init_timeout=60)
    board[MADE + 2 + rank] = 1
    mine, total, stop = numpy.full(COUNT, rank + 1, "float32"), numpy.empty(COUNT, "float32"), numpy.zeros(1, "int32")
    while not stop[0]:
        comm.allreduce(mine, out=total)
        if total[0] != RANKS * (RANKS + 1) / 2 or total[-1] != total[0] or comm.size != RANKS:
            raise SystemExit("somebody has joined: the sum is %g" % total[0])
        stop[0] = board[STOP]
        comm.allreduce(stop, op="max")
        board[MADE + 2 + rank] += 1
    comm.destroy()


def listeners_of(pid):
    """Ports on which a process listens."""
    inodes = set()
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            inodes.add(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except OSError:
            pass
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as f:
            for line in list(f)[1:]:
                words = line.split()
                if words[3] == "0A" and "socket:[%s]" % words[9] in inodes:
                    found.append(int(words[1].rsplit(":", 1)[1], 16))
    return found


def greeting_of(port):
    s = socket.create_connection(("127.0.0.1", port))
    s.settimeout(5)
    said = s.recv(4096)
    s.close()
    return said


def start_job(board):
    """All ranks but the last, which comes when strangers have been there for a while."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        root = "127.0.0.1:%d" % s.getsockname()[1]
    ranks = [child(sum_up, r, root, board) for r in range(RANKS - 1)]
    port = int(root.split(":")[1])
    while True:
        try:
            words = greeting_of(port)
            break
        except OSError:
            time.sleep(0.01)
    attacker = child(attack, board, words)
    board[PORT] = port
    time.sleep(2)
    began = time.monotonic()
    ranks.append(child(sum_up, RANKS - 1, root, board))
    while not all(board[MADE + 2 + r] for r in range(RANKS)) and time.monotonic() < began + 60:
        time.sleep(0.005)
    return ranks, attacker, time.monotonic() - began


def main():
    build, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    os.environ["RINGRED_LIBRARY"] = os.path.join(build, "lib", "libringred.so.0")
    sys.path.insert(0, os.path.join(TOP, "bindings", "python"))
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("SKIP: no numpy")
        return 77
    board, dummy = Board(16), socket.socket()
    dummy.bind(("127.0.0.1", 0))
    dummy.listen(128)
    accepting = child(accept, dummy)
    ranks, attacker, took = start_job(board)
    ports = [p for r in ranks for p in listeners_of(r)]
    rates = {"ranks": [], "dummy": []}
    for i in range(int(seconds / WINDOW_S / 2)):
        for whom in ("ranks", "dummy") if i % 2 else ("dummy", "ranks"):
            board[PORT] = ports[i % len(ports)] if whom == "ranks" and ports else dummy.getsockname()[1]
            before, at = board[MADE + 2], time.monotonic()
            time.sleep(WINDOW_S)
            rates[whom].append((board[MADE + 2] - before) / (time.monotonic() - at))
    for pid in (attacker, accepting):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    board[STOP] = 1
    ends = [os.waitpid(r, 0)[1] for r in ranks]
    middle = {whom: statistics.median(of) for whom, of in rates.items()}
    ratio = middle["ranks"] / middle["dummy"]
    print("made %.2f s after the last rank had started; %d listeners of ranks; %.0f and %.0f allreduces of 1 MiB a second"
          % (took, len(ports), middle["ranks"], middle["dummy"]))
    fine = ratio >= 0.9 and not any(ends) and ports
    print("%s: %.2f of the speed under the same attack on another listener; nobody joined; ranks ended with %s"
          % ("holds" if fine else "FAILS", ratio, ends))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
