"""The peers that benchmarks/network.py can measure: PyTorch's DDP over gloo, and its hooks.

PyTorch need not be in the environment of tf_gc; `--torch-python` names a Python that has it:

    python -m venv torch-venv
    torch-venv/bin/pip install torch numpy   # a build for the CPU is enough
    sudo python benchmarks/network.py --torch-python torch-venv/bin/python \
        --modes stock default ddp ddp:fp16 powersgd:1 powersgd:4 alone torch:alone

Modes: `ddp` sends float32, `ddp:fp16` float16; `powersgd:4` is PowerSGD (Vogels et al. 2019) of
rank 4; `torch:alone` computes the same step and sends nothing. network_torch_worker.py says with
which options they run.
"""

import dataclasses
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

WORKER = Path(__file__).with_name("network_torch_worker.py")
MODELS = ["mlp", "lstm", "vgg", "small"]  # the keys of torch_models.MODELS
FORMS = ["ddp", "ddp:fp16", "powersgd:RANK", "torch:alone"]

_HOOKS = {"ddp": "none", "ddp:fp16": "fp16", "torch:alone": "alone"}
_CHECK = (
    "import numpy, torch, torch.distributed as dist\n"
    "assert dist.is_available() and dist.is_gloo_available(), 'this PyTorch has no gloo'\n"
    "print(torch.__version__)"
)


@dataclasses.dataclass(frozen=True)
class Peer:
    """What a mode asks of network_torch_worker.py.

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
        raise ValueError(f"the modes {peers} have the models {MODELS}, not {model!r}")
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
        f"or in that of --torch-python; {python} says: {why}"
    )
