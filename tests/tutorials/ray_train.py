"""Follows https://docs.ray.io/en/latest/train/distributed-tensorflow-keras.html, with digits.

The argument is a folder for Ray's results.
"""

import sys
from typing import Any

import ray
import tensorflow as tf
from ray import train
from ray.air.integrations.keras import ReportCheckpointCallback
from ray.train import RunConfig, ScalingConfig
from ray.train.tensorflow import TensorflowTrainer
from sklearn.datasets import load_digits


def train_digits(config: dict[str, Any]) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [tf.keras.Input((64,)), layers.Dense(64, activation="relu"), layers.Dense(10)]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(config["rate"]), loss, metrics=["accuracy"])
    digits = train.get_dataset_shard("train")
    for _ in range(config["epochs"]):
        dataset = digits.to_tf("image", "label", batch_size=config["batch_size"])
        model.fit(dataset, callbacks=[ReportCheckpointCallback()], verbose=2)
    print("weights", [float(abs(weight).sum()) for weight in model.get_weights()])


images, labels = load_digits(return_X_y=True)
rows = zip(images.astype("float32") / 16, labels, strict=True)
trainer = TensorflowTrainer(
    train_loop_per_worker=train_digits,
    train_loop_config={"rate": 0.3, "batch_size": 64, "epochs": 2},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=sys.argv[1]),
    datasets={"train": ray.data.from_items([{"image": x, "label": y} for x, y in rows])},
)
print(trainer.fit().metrics)
