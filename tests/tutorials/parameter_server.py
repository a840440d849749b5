"""Follows https://www.tensorflow.org/tutorials/distribute/parameter_server_training.

It learns whether most of three words are trees.
"""

import random

import tensorflow as tf

TREES = ["ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine"]
BIRDS = ["crow", "dove", "eagle", "finch", "goose", "heron", "jay", "lark", "robin", "wren"]
layers = tf.keras.layers

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type != "chief":
    tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)


def make_examples(count: int) -> tf.data.Dataset:
    words = [random.sample(TREES + BIRDS, 3) for _ in range(count)]
    trees = [sum(word in TREES for word in three) for three in words]
    labels = [["yes" if number > 1 else "no"] for number in trees]
    # The tutorial looks up single examples; models of Keras 3 want a batch.
    return tf.data.Dataset.from_tensor_slices((words, labels)).shuffle(count).batch(32)


with strategy.scope():
    word_lookup = layers.StringLookup(vocabulary=TREES + BIRDS, mask_token=None)
    label_lookup = layers.StringLookup(vocabulary=["no", "yes"], num_oov_indices=0, mask_token=None)
    words, label = layers.Input((3,), dtype="string"), layers.Input((1,), dtype="string")
    find_words = tf.keras.Model(words, word_lookup(words))
    find_label = tf.keras.Model(label, label_lookup(label))

    numbers = layers.Input((3,), dtype="int64", name="words")
    vectors = layers.Embedding(len(word_lookup.get_vocabulary()), 16384)(numbers)
    mean = layers.GlobalAveragePooling1D()(vectors)
    model = tf.keras.Model({"words": numbers}, layers.Dense(1, activation="sigmoid")(mean))
    optimizer = tf.keras.optimizers.RMSprop(0.0005)
    accuracy = tf.keras.metrics.Accuracy()
loss_of_each = tf.keras.losses.BinaryCrossentropy(reduction="none")


def find(words: tf.Tensor, labels: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    return {"words": find_words(words)}, find_label(labels)


@tf.function
def step(iterator: tf.data.Iterator) -> tf.Tensor:
    def replica_step(batch: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            predicted = model(batch, training=True)
            loss = tf.nn.compute_average_loss(loss_of_each(labels, predicted))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(labels, predicted > 0.5)
        return loss

    return strategy.reduce("SUM", strategy.run(replica_step, args=next(iterator)), axis=None)


@tf.function
def make_dataset() -> tf.data.Dataset:
    examples = make_examples(200).map(find).repeat()
    return strategy.distribute_datasets_from_function(lambda _: examples)


coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
iterator = iter(coordinator.create_per_worker_dataset(make_dataset))
for epoch in range(4):
    accuracy.reset_state()
    losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(10)]
    coordinator.join()
    loss = sum(float(loss.fetch()) for loss in losses) / len(losses)
    print(f"epoch {epoch}, accuracy {accuracy.result():.3f}, loss {loss:.4f}")

correct = tf.keras.metrics.Accuracy()
for batch, labels in make_examples(64).map(find):
    correct.update_state(labels, model(batch, training=False) > 0.5)
print(f"evaluated: accuracy {correct.result():.3f}")
print("weights", [float(abs(weight).sum()) for weight in model.get_weights()])
