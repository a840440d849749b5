"""What `import tf_gc` gives."""

import keras

import tf_gc


def test_public_names_exist() -> None:
    assert sorted(tf_gc.__all__) == tf_gc.__all__
    for module in (tf_gc, tf_gc.keras, tf_gc.ops):
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_params_are_public_names() -> None:
    for name in ("ByVariable", "NoCompression", "OneBit", "Quantized", "TwoBit"):
        assert name in tf_gc.__all__
        assert issubclass(getattr(tf_gc, name), tf_gc.params.CompressionParams)


def test_the_callbacks_are_public_names() -> None:
    assert "keras" in tf_gc.__all__
    assert issubclass(tf_gc.keras.BackupAndRestore, keras.callbacks.BackupAndRestore)
    assert issubclass(tf_gc.keras.CompressionMonitor, keras.callbacks.Callback)
