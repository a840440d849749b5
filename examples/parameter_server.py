"""Handwritten digits with parameter servers: workers push codes, and pull differences.

python -m tf_gc.launch --workers 2 --servers 2 examples/parameter_server.py
"""

import argparse
import time

import training  # noqa: F401  (in this folder; before Keras, which it sets up)

# isort: split
import keras
import tensorflow as tf
from digits import load_digits, make_model

import tf_gc


def main() -> None:
    options = parse_options()
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type == "chief":
        train(options, cluster)
    else:
        tf_gc.run_server()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--compression", choices=["none", "quantized", "2bit", "bfloat16"], default="quantized"
    )
    parser.add_argument("--pull", choices=["full", "bfloat16", "delta"], default="delta")
    parser.add_argument("--steps", type=int, default=600, help="of all workers together")
    parser.add_argument("--batch-size", type=int, default=32, help="of a worker")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in ("steps", "batch_size"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return options


def train(
    options: argparse.Namespace, cluster: tf.distribute.cluster_resolver.ClusterResolver
) -> None:
    """Trains, as the coordinator does."""
    strategy = tf_gc.CompressedParameterServerStrategy(
        cluster,
        compression_params={"type": options.compression},
        pull=options.pull,
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    (x, y), (x_test, y_test) = load_digits(options.seed)
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        model = make_model()
        optimizer = keras.optimizers.SGD(0.02, momentum=0.9)
        optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def batches() -> tf.data.Dataset:
        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x))
        return data.repeat().batch(options.batch_size)

    @tf.function
    def step(iterator: tf.data.Iterator) -> tf.Tensor:
        def replica(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = loss_fn(y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.run(replica, args=next(iterator))

    iterator = iter(coordinator.create_per_worker_dataset(batches))
    begun = time.perf_counter()
    losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(options.steps)]
    coordinator.join()
    seconds = time.perf_counter() - begun
    correct = tf.argmax(model(x_test), axis=1) == y_test
    print(strategy.schedule or "nothing is compressed")
    print(f"pull={options.pull!r}: {strategy.traffic or 'as under the stock strategy'}")
    print(f"steps                      {int(optimizer.iterations.numpy())}")
    print(f"seconds with tracing       {seconds:.1f}")
    print(f"last loss                  {float(losses[-1].fetch()):.4f}")
    print(f"test accuracy              {float(tf.reduce_mean(tf.cast(correct, tf.float32))):.4f}")


if __name__ == "__main__":
    main()
