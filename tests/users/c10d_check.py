# SPDX-License-Identifier: Apache-2.0
"""Under torchrun: every call of the back end of c10d_sketch.cpp, and training with DDP, against what they must give."""
import datetime
import sys

import ringred_c10d
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64, torch.uint8]


def same(got, due):
    assert torch.equal(got, torch.as_tensor(due, dtype=got.dtype).expand_as(got)), f"{got} instead of {due}"


def collectives(rank, size):
    total = size * (size + 1) // 2
    for dtype in TYPES:
        x = torch.full((3, 5), rank + 1, dtype=dtype)
        dist.all_reduce(x)
        same(x, total)
    for n in (0, 1, 100_003):
        x = torch.full((n,), rank + 1.0)
        work = dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True)
        work.wait()
        assert work.is_completed()
        same(x, total / size)
    x = torch.full((4,), float(rank))
    dist.broadcast(x, src=size - 1)
    same(x, size - 1)
    x = torch.full((4,), float(rank))
    dist.reduce(x, dst=1, op=dist.ReduceOp.MAX)
    if rank == 1:
        same(x, size - 1)
    parts = [torch.empty(2, 3) for _ in range(size)]
    dist.all_gather(parts, torch.full((2, 3), float(rank)))
    for r, part in enumerate(parts):
        same(part, r)
    flat = torch.empty(size * 3)
    dist.all_gather_into_tensor(flat, torch.full((3,), float(rank)))
    same(flat, torch.arange(size).repeat_interleave(3))
    mine = torch.empty(3)
    dist.reduce_scatter(mine, [torch.full((3,), r + rank * 10.0) for r in range(size)])
    same(mine, rank * size + 5 * size * (size - 1))
    dist.reduce_scatter_tensor(mine, torch.arange(size * 3.0))
    same(mine, (torch.arange(3) + 3 * rank) * size)
    out = torch.empty(size * 2)
    dist.all_to_all_single(out, torch.arange(size).repeat_interleave(2) + 100.0 * rank)
    same(out, torch.arange(size).repeat_interleave(2) * 100 + rank)
    # r + 1 rows of two elements go to rank r
    rows = torch.cat([torch.full((r + 1, 2), 100.0 * rank + r) for r in range(size)])
    out = torch.empty(size * (rank + 1), 2)
    dist.all_to_all_single(out, rows, [rank + 1] * size, [r + 1 for r in range(size)])
    same(out, (torch.arange(size).repeat_interleave(rank + 1) * 100 + rank).unsqueeze(1))
    dist.barrier()


def messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for n in (1, 100_000):
        got = torch.empty(n)
        works = [dist.isend(torch.full((n,), float(rank)), right, tag=3), dist.irecv(got, left, tag=3)]
        for work in works:
            work.wait()
        same(got, left)
    x = torch.full((2,), float(rank))
    if rank == 0:
        for _ in range(size - 1):
            source = dist.recv(x)
            same(x, source)
    else:
        dist.send(x, 0)
    dist.barrier()


def groups(rank, size):
    odd = dist.new_group([r for r in range(size) if r % 2])
    even = dist.new_group([r for r in range(size) if r % 2 == 0])
    x = torch.tensor([float(rank)])
    dist.all_reduce(x, group=odd if rank % 2 else even)
    same(x, sum(r for r in range(size) if r % 2 == rank % 2))


def futures(rank, size):
    x = torch.full((1000,), float(rank))
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    same(doubled.wait(), size * (size - 1))
    many = [torch.full((i + 1,), float(rank)) for i in range(50)]
    works = [dist.all_reduce(m, async_op=True) for m in many]
    for m, work in zip(many, works):
        work.wait()
        same(m, size * (size - 1) / 2)


def mistakes(rank, size):
    for call in (lambda: dist.all_reduce(torch.ones(4)[::2]),
                 lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND)):
        try:
            call()
        except RuntimeError as e:
            assert "ringred" in str(e), e
        else:
            raise AssertionError("it was taken")


def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)).double()


def train(net, x, y):
    net.eval()  # so that the batch's parts are independent, and one process gives the same
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
    return loss.item(), torch.cat([p.detach().flatten() for p in net.parameters()])


def ddp(rank, size):
    torch.manual_seed(3)
    x, y = torch.randn(16 * size, 8).double(), torch.randn(16 * size, 1).double()
    here = slice(16 * rank, 16 * (rank + 1))
    _, weights = train(DistributedDataParallel(model(), bucket_cap_mb=0.001), x[here], y[here])
    loss, alone = train(model(), x, y)
    assert torch.allclose(weights, alone, rtol=1e-10, atol=1e-12), (weights - alone).abs().max()
    everybody = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(everybody, weights)
    for other in everybody:
        same(other, weights)
    return loss


def main():
    dist.Backend.register_backend("ringred", ringred_c10d.create, devices=["cpu"])
    dist.init_process_group("ringred", timeout=datetime.timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    for part in (collectives, messages, groups, futures, mistakes):
        part(rank, size)
    loss = ddp(rank, size)
    dist.destroy_process_group()
    sys.stdout.write(f"rank {rank} of {size}: right, loss {loss:.6f}\n")  # at once: ranks share the file


if __name__ == "__main__":
    main()
