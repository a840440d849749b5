"""The peers that network.py can measure: PyTorch's DDP over gloo, and its hooks.

PyTorch need not be in the environment of tf_gc; `--torch-python` names a Python that has it:

    python -m venv torch-venv
    torch-venv/bin/pip install torch numpy   # a build for the CPU is enough
    sudo python benchmarks/network.py --torch-python torch-venv/bin/python \
        --modes stock default ddp ddp:fp16 powersgd:1 powersgd:4 alone torch:alone

Modes: `ddp` sends float32, `ddp:fp16` float16; `powersgd:4` is PowerSGD (Vogels et al. 2019) of
rank 4; `torch:alone` computes the same step and sends nothing.

network.py imports this file, and runs it as a program for each worker (network_requests.py). A
peer gets what its users would give it: buckets of 25 MB, DDP's default, with gradients as views of
them; a fused optimizer; convolutions with channels last, as in Keras. Without a hook, the gradient
of an embedding is sparse, as in Keras; hooks take dense ones only. The batch is the same in every
step, and on every worker.

PowerSGD has error feedback and a warm start, and compresses from the third step on, the earliest
that DDP allows. All gradients are in one bucket: with several, two workers may start the second and
third all-reduce of two buckets in different orders, and gloo then fails or hangs.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import network_requests

if __name__ == "__main__":  # as a worker: the coordinator may have no PyTorch
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

WORKER = Path(__file__)
FORMS = ["ddp", "ddp:fp16", "powersgd:RANK", "torch:alone"]

WARM_UP_STEPS = 4  # DDP forms its buckets anew after the first; PowerSGD compresses two
POWER_SGD_FROM = 2
MEGABYTE = 1 << 20

_HOOKS = {"ddp": "none", "ddp:fp16": "fp16", "torch:alone": "alone"}
_CHECK = (
    "import numpy, torch, torch.distributed as dist\n"
    "assert dist.is_available() and dist.is_gloo_available(), 'this PyTorch has no gloo'\n"
    "print(torch.__version__)"
)


@dataclasses.dataclass(frozen=True)
class Peer:
    """The part of a worker's task that a mode says.

    Attributes:
      hook: "alone", "none", "fp16" or "powersgd".
      rank: of PowerSGD's matrices; 0 for the others.
    """

    hook: str
    rank: int = 0


def peer(mode: str) -> Peer | None:
    """Returns the peer that a mode names, `None` if it names none."""
    match = re.fullmatch(r"powersgd:([1-9]\d*)", mode)
    if match:
        return Peer("powersgd", int(match[1]))
    return Peer(_HOOKS[mode]) if mode in _HOOKS else None


def check(modes: Iterable[str], model: str, python: str) -> str | None:
    """Returns the version of PyTorch that the peers among `modes` will run, `None` without any.

    Args:
      modes: of network.py; others are ignored.
      model: its name.
      python: the Python that is to run them.

    Raises:
      ValueError: if there is no such model, or this Python cannot run them.
    """
    peers = [mode for mode in modes if peer(mode)]
    if not peers:
        return None
    if model not in MODELS:
        raise ValueError(f"the modes {peers} have the models {[*MODELS]}, not {model!r}")
    try:
        done = subprocess.run(
            [python, "-c", _CHECK], capture_output=True, text=True, timeout=300, check=False
        )
    except OSError as error:
        why = str(error)
    else:
        if not done.returncode:
            return done.stdout.strip()
        why = done.stderr.strip().rpartition("\n")[2]
    raise ValueError(
        f"the modes {peers} need PyTorch with gloo (pip install torch numpy), in this environment "
        f"or in the one of --torch-python; {python} says: {why}"
    )


# The models of models.py: the same layers, sizes and numbers of parameters, with a batch.


def mlp(batch: int, sparse: bool) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    layers = [layer for _ in range(3) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(2048, 10))
    return model, torch.rand(batch, 2048), torch.randint(10, (batch,))


def lstm(batch: int, sparse: bool) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    words = 10_000

    class LanguageModel(nn.Module):
        """Gives logits [batch, words, time], the order that `CrossEntropyLoss` wants."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(words, 256, sparse=sparse)
            self.lstm = nn.LSTM(256, 256, num_layers=2, batch_first=True)
            self.dense = nn.Linear(256, words)
            for layer in range(2):  # PyTorch has a second bias that Keras does not have
                bias = getattr(self.lstm, f"bias_hh_l{layer}")
                nn.init.zeros_(bias)
                bias.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.dense(self.lstm(self.embedding(x))[0]).transpose(1, 2)

    x, y = torch.randint(words, (2, batch, 20))
    return LanguageModel(), x, y


def vgg(batch: int, sparse: bool) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    layers: list[nn.Module] = []
    for before, filters in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, filters, 3, padding="same"), nn.ReLU(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    for _ in range(2):
        layers += [nn.Linear(2048, 2048), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(2048, 100))
    return model, torch.rand(batch, 3, 32, 32), torch.randint(100, (batch,))


def small(batch: int, sparse: bool) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    model = nn.Sequential(*(nn.Linear(14, 14) for _ in range(50)))
    return model, torch.rand(batch, 14), torch.randint(14, (batch,))


# Each takes the batch and whether an embedding's gradient is to be sparse.
MODELS: dict[str, Callable[[int, bool], Any]] = {
    builder.__name__: builder for builder in (mlp, lstm, vgg, small)
}


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
    model, x, y = MODELS[task["model"]](task["batch_size"], sparse)
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
