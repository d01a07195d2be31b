# SPDX-License-Identifier: Apache-2.0
"""Runs a function as the ranks of a job, in processes of this machine."""
import multiprocessing
import os
import signal
import traceback

import ringred

PATIENCE_S = 60  # a rank that has not ended by then hangs
fork = multiprocessing.get_context("fork")


class Interrupted(Exception):
    pass


def raise_after(seconds):
    """Has a signal handler of Python raise Interrupted, as Ctrl-C does with KeyboardInterrupt."""
    def handler(number, frame):
        raise Interrupted

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def rank_main(rank, size, ids, report, body, arguments, broken, settings):
    try:
        if rank == 0:
            job = ringred.unique_id()
            for pipe in ids[1:]:
                pipe[1].send_bytes(job)
        else:
            job = ids[rank][0].recv_bytes()
        comm = ringred.init(rank=rank, size=size, id=job, **settings)
        value = body(comm, *arguments)
        if broken:
            try:
                comm.destroy()
            except ringred.Error:
                pass                                # it tells again what had failed
        comm.destroy()
        report.send((True, value))
    except BaseException:
        report.send((False, traceback.format_exc()))
    finally:
        report.close()
        os._exit(0)


def run_ranks(size, body, *arguments, silent=(), broken=False, **settings):
    """body(comm, *arguments) in each of `size` new processes; what they returned. A failed assertion
    in any rank fails here. Ranks in `silent` may end without a word; broken: the communicator ends so."""
    ids = [fork.Pipe(False) for _ in range(size)]
    reports = [fork.Pipe(False) for _ in range(size)]
    processes = [
        fork.Process(target=rank_main, args=(r, size, ids, reports[r][1], body, arguments, broken, settings))
        for r in range(size)
    ]
    for process in processes:
        process.start()
    for pipe in reports:
        pipe[1].close()
    values, trouble = [], []
    for r in range(size):
        try:
            if not reports[r][0].poll(PATIENCE_S):
                raise AssertionError("rank %d hangs" % r)
            fine, value = reports[r][0].recv()
        except EOFError:
            fine, value = r in silent, "ended without a word"
        except AssertionError as failure:
            fine, value = False, str(failure)
        values.append(value)
        if not fine:
            trouble.append("rank %d: %s" % (r, value))
    for process in processes:
        if trouble:
            process.kill()
        process.join()
    if trouble:
        raise AssertionError("\n".join(trouble))
    return values


def raises(kind, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as failure:
        return failure
    raise AssertionError("%s was not raised" % kind.__name__)
