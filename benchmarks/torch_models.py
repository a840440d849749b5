"""The models of models.py in PyTorch: the same layers, sizes and numbers of parameters."""

from collections.abc import Callable

import torch
from torch import nn

Built = tuple[nn.Module, torch.Tensor, torch.Tensor]


class LanguageModel(nn.Module):
    """Gives logits [batch, words, time], the order that `cross_entropy` wants."""

    def __init__(self, words: int, sparse: bool) -> None:
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


def mlp(batch: int, sparse: bool) -> Built:
    layers = [layer for _ in range(3) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(2048, 10))
    return model, torch.rand(batch, 2048), torch.randint(10, (batch,))


def lstm(batch: int, sparse: bool) -> Built:
    words = 10_000
    x, y = torch.randint(words, (2, batch, 20))
    return LanguageModel(words, sparse), x, y


def vgg(batch: int, sparse: bool) -> Built:
    layers: list[nn.Module] = []
    for before, filters in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, filters, 3, padding="same"), nn.ReLU(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    for _ in range(2):
        layers += [nn.Linear(2048, 2048), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(2048, 100))
    return model, torch.rand(batch, 3, 32, 32), torch.randint(100, (batch,))


def small(batch: int, sparse: bool) -> Built:
    model = nn.Sequential(*(nn.Linear(14, 14) for _ in range(50)))
    return model, torch.rand(batch, 14), torch.randint(14, (batch,))


# Each takes the batch and whether an embedding's gradient is to be sparse.
MODELS: dict[str, Callable[[int, bool], Built]] = {
    builder.__name__: builder for builder in (mlp, lstm, vgg, small)
}
