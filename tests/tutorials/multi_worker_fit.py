"""Follows https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras, with digits.

The argument is a folder that all workers see.
"""

import json
import os
import sys

import tensorflow as tf
from sklearn.datasets import load_digits

FOLDER = sys.argv[1]


def make_dataset(batch_size: int) -> tf.data.Dataset:
    images, labels = load_digits(return_X_y=True)
    data = tf.data.Dataset.from_tensor_slices((images.astype("float32") / 16, labels))
    return data.shuffle(len(labels)).repeat().batch(batch_size)


def make_model() -> tf.keras.Model:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((64,)),
            layers.Reshape((8, 8, 1)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    return model


workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
dataset = make_dataset(32 * workers)
with strategy.scope():
    model = make_model()
validation = {"validation_data": dataset, "validation_steps": 5}
model.fit(dataset, epochs=3, steps_per_epoch=30, verbose=2, **validation)

# The chief writes to the path itself, another worker into a folder of its own, which it removes.
index = strategy.cluster_resolver.task_id
place = FOLDER if index == 0 else os.path.join(FOLDER, f"of_worker_{index}")
tf.io.gfile.makedirs(place)
model.save(os.path.join(place, "digits.keras"))
checkpoint = tf.train.Checkpoint(model=model)
directory = os.path.join(place, "checkpoints")
tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1).save()
if index != 0:
    tf.io.gfile.rmtree(place)

# It ends when all workers have taken part, and so have written.
_, accuracy = model.evaluate(dataset, steps=20, verbose=0)
print(f"evaluated: accuracy {accuracy:.3f}")

loaded = tf.keras.models.load_model(os.path.join(FOLDER, "digits.keras"))
loaded.fit(make_dataset(64), epochs=1, steps_per_epoch=10, verbose=0)  # without a strategy

checkpoint.restore(tf.train.latest_checkpoint(os.path.join(FOLDER, "checkpoints")))
model.fit(dataset, epochs=1, steps_per_epoch=10, verbose=0)

with strategy.scope():
    model = make_model()
backup = tf.keras.callbacks.BackupAndRestore(os.path.join(FOLDER, "backup"))
model.fit(dataset, epochs=3, steps_per_epoch=30, callbacks=[backup], verbose=2)
print("weights", [float(abs(weight).sum()) for weight in model.get_weights()])
