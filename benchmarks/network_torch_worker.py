"""A worker process of benchmarks/network.py that runs PyTorch's DDP; see network_requests.py.

A peer gets what its users would give it: buckets of 25 MB, DDP's default, with gradients as views
of them; a fused optimizer; convolutions with channels last, as in Keras. Without a hook, the
gradient of an embedding is sparse, as in Keras; hooks take dense ones only. The batch is the same
in every step, and on every worker.

PowerSGD has error feedback and a warm start, and compresses from the third step on, the earliest
that DDP allows. All gradients are in one bucket. The hook makes three all-reduces for a bucket, one
after the other, and gloo's threads start the second and the third. With several buckets two workers
may start theirs in different orders: gloo then fails, or hangs (docs/experiments.md).
"""

import json
import math
import os
from collections.abc import Callable
from typing import Any

import network_requests
import torch
import torch.distributed as dist
import torch_models
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

WARM_UP_STEPS = 4  # DDP forms its buckets anew after the first; PowerSGD compresses two
POWER_SGD_FROM = 2
MEGABYTE = 1 << 20


def join(interface: str) -> None:
    """Makes this process a member of the group that TF_CONFIG describes."""
    config = json.loads(os.environ["TF_CONFIG"])
    addresses = config["cluster"]["worker"]
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{addresses[0]}",
        rank=config["task"]["index"],
        world_size=len(addresses),
    )


def sparse_embedding(task: dict[str, Any]) -> bool:
    return task["model"] == "lstm" and task["hook"] in ("none", "alone")


def build(task: dict[str, Any]) -> tuple[Callable[[], torch.Tensor], list[torch.Tensor], Any]:
    """Returns a function that runs a training step, the trained parameters, PowerSGD's state.

    The function returns the loss before the step. The state is `None` without PowerSGD.
    """
    torch.manual_seed(1)
    hook, sparse = task["hook"], sparse_embedding(task)
    model, x, y = torch_models.MODELS[task["model"]](task["batch_size"], sparse)
    for parameter in model.parameters():  # as Keras does
        (nn.init.xavier_uniform_ if parameter.dim() > 1 else nn.init.zeros_)(parameter)
    if x.dim() == 4:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    parameters = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.SGD(parameters, 1e-3, momentum=0.9, fused=not sparse)
    loss_of = nn.CrossEntropyLoss()
    trained: nn.Module = model
    state = None
    if hook != "alone":
        every = sum(4 * one.numel() for one in parameters)
        trained = ddp = DistributedDataParallel(
            model,
            gradient_as_bucket_view=True,
            bucket_cap_mb=math.ceil(every / MEGABYTE) if hook == "powersgd" else None,
        )
        if hook == "fp16":
            ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif hook == "powersgd":
            state = powerSGD_hook.PowerSGDState(
                None,
                matrix_approximation_rank=task["rank"],
                start_powerSGD_iter=POWER_SGD_FROM,
                use_error_feedback=True,
                warm_start=True,
            )
            ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(trained(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, parameters, state


def predicted_bytes(task: dict[str, Any], elements: int, state: Any) -> int | None:
    """Returns what a worker sends in a step by rings; `None` if a gradient is sparse."""
    hook = task["hook"]
    if hook == "alone":
        return 0
    if sparse_embedding(task):
        return None
    if state is not None:
        rate, _, _ = state.compression_stats()
        elements = round(elements / rate)
    workers = dist.get_world_size()
    return round(2 * (workers - 1) / workers * elements * (2 if hook == "fp16" else 4))


def main() -> None:
    worker = network_requests.Worker()
    task = worker.task
    torch.set_num_threads(task["threads"])
    torch.set_num_interop_threads(task["threads"])
    if task["hook"] != "alone":
        join(task["interface"])
    step, parameters, state = build(task)
    worker.run_steps(step, WARM_UP_STEPS)
    elements = sum(one.numel() for one in parameters)
    worker.serve(
        step,
        {"parameters": elements, "stock_bytes": None},
        lambda: predicted_bytes(task, elements, state),
    )


if __name__ == "__main__":
    main()
