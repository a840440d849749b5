"""A recurrent language model of words, on several replicas or workers, with compressed gradients.

Embedding, two LSTM layers and a dense softmax over the vocabulary, which holds most parameters:
much to send for little to compute. The text is Python's own documentation of its language, which
ships with Python, or any file; the last tenth of it is the test data. At the end the model writes
some words itself.

    python examples/word_language_model.py
    python examples/word_language_model.py --text book.txt --hidden 400 --epochs 10
    python -m tf_gc.launch --workers 2 examples/word_language_model.py
"""

import argparse
import collections
import re
from pathlib import Path

import training  # in this folder; before Keras, which it sets up

# isort: split
import keras
import numpy as np
import tensorflow as tf

UNKNOWN = "<unk>"
OPTIMIZERS = {
    "adam": lambda rate: keras.optimizers.Adam(rate or 5e-3),
    "momentum": lambda rate: keras.optimizers.SGD(rate or 1.0, momentum=0.9, clipnorm=1),
    "sgd": lambda rate: keras.optimizers.SGD(rate or 10.0, clipnorm=1),
}


def main() -> None:
    parser = training.make_parser(__doc__.split("\n")[0], list(OPTIMIZERS))
    model = parser.add_argument_group("model")
    model.add_argument("--text", type=Path, help="a text file, in UTF-8")
    model.add_argument("--vocabulary", type=training.positive, default=10_000, help="at most")
    model.add_argument("--window", type=training.positive, default=20, help="words of a sequence")
    model.add_argument("--hidden", type=training.positive, default=128, help="units of a layer")
    model.add_argument("--dropout", type=float, default=0.2)
    model.add_argument("--start", default="the value of", help="of the text the model writes")
    model.add_argument("--words", type=int, default=60, help="how many it writes")
    parser.set_defaults(epochs=4, batch_size=16)
    options = training.parse(parser)
    strategy = training.make_strategy(options)
    words = split_words(options.text.read_text("utf-8") if options.text else python_topics())
    vocabulary = make_vocabulary(words, options.vocabulary)
    train_data, test_data = make_sequences(words, vocabulary, options.window)
    if strategy.is_chief:
        source = options.text or "Python's documentation topics"
        known = len(vocabulary) - 1
        print(f"{source}: {len(words):,} words and signs, {known:,} in the vocabulary", flush=True)
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        model = make_model(len(vocabulary), options.hidden, options.dropout)
        model.compile(
            optimizer=OPTIMIZERS[options.optimizer](options.learning_rate),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[Perplexity(name="perplexity")],
        )
    training.fit(model, strategy, train_data, test_data, options)
    if strategy.is_chief and options.words > 0:
        start = split_words(options.start) or vocabulary[1:2]
        print("\n" + write(model, vocabulary, start, options), flush=True)


class Perplexity(keras.metrics.SparseCategoricalCrossentropy):
    """The exponential of the mean cross-entropy of logits: e^(mean of -log p(word))."""

    def __init__(self, name: str = "perplexity") -> None:
        super().__init__(name=name, from_logits=True)

    def result(self) -> tf.Tensor:
        return keras.ops.exp(super().result())

    def get_config(self) -> dict:
        return {"name": self.name}


def python_topics() -> str:
    """Returns the topics of Python's `help()`, in alphabetical order."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def split_words(text: str) -> list[str]:
    """Returns words and punctuation in lower case, without lines that have no word."""
    lines = [line for line in text.lower().splitlines() if re.search(r"\w", line)]
    return re.findall(r"\w+(?:['’]\w+)*|[^\w\s]", "\n".join(lines))


def make_vocabulary(words: list[str], limit: int) -> list[str]:
    """Returns UNKNOWN and the words that occur at least twice, frequent ones first."""
    counts = collections.Counter(words).most_common(limit - 1)
    return [UNKNOWN, *(word for word, count in counts if count > 1)]


def numbers_of(words: list[str], vocabulary: list[str]) -> np.ndarray:
    """Returns the words' places in the vocabulary, int32."""
    places = {word: place for place, word in enumerate(vocabulary)}
    return np.array([places.get(word, 0) for word in words], np.int32)


def make_sequences(
    words: list[str], vocabulary: list[str], window: int
) -> tuple[training.Split, training.Split]:
    """Returns (train, test): sequences [n, window] and the same one word further on."""
    numbers = numbers_of(words, vocabulary)
    cut = len(numbers) * 9 // 10

    def sequences(part: np.ndarray) -> training.Split:
        count = (len(part) - 1) // window
        if count < 1:
            raise SystemExit(f"the text is too short: {len(words)} words, --window {window}")
        used = count * window
        return part[:used].reshape(-1, window), part[1 : used + 1].reshape(-1, window)

    return sequences(numbers[:cut]), sequences(numbers[cut:])


def make_model(
    vocabulary: int, hidden: int, dropout: float, length: int | None = None
) -> keras.Model:
    """Returns the model: words [n, length] to logits [n, length, vocabulary].

    With a fixed length, which should be short, there is no loop over it: that is faster.
    """
    layers = keras.layers
    # Keras' own ±0.05 leaves two LSTM layers little to tell words apart by.
    vectors = keras.initializers.RandomUniform(-1, 1)
    return keras.Sequential(
        [
            keras.Input((length,), dtype="int32"),
            layers.Embedding(vocabulary, hidden, embeddings_initializer=vectors),
            layers.Dropout(dropout),
            layers.LSTM(hidden, return_sequences=True, unroll=length is not None),
            layers.Dropout(dropout),
            layers.LSTM(hidden, return_sequences=True, unroll=length is not None),
            layers.Dropout(dropout),
            layers.Dense(vocabulary),
        ]
    )


def write(
    model: keras.Model, vocabulary: list[str], start: list[str], options: argparse.Namespace
) -> str:
    """Returns text that goes on from `start`, each word drawn by its probability."""

    @tf.function(input_signature=[tf.TensorSpec([1, None], tf.int32)])
    def logits_after(context: tf.Tensor) -> tf.Tensor:
        return model(context, training=False)[0, -1]

    random = np.random.default_rng(options.seed)
    numbers = list(numbers_of(start, vocabulary))
    for _ in range(options.words):
        context = np.array([numbers[-options.window :]], np.int32)
        logits = logits_after(context).numpy().astype(np.float64)
        logits[0] = -np.inf  # not UNKNOWN
        odds = np.exp(logits - logits.max())
        numbers.append(random.choice(len(vocabulary), p=odds / odds.sum()))
    words = start + [vocabulary[number] for number in numbers[len(start) :]]
    return re.sub(r" ([.,:;!?)\]}])|([(\[{]) ", r"\1\2", " ".join(words))


if __name__ == "__main__":
    main()
