"""What `import tf_gc` gives."""

import keras

import tf_gc


def test_public_names_exist() -> None:
    assert sorted(tf_gc.__all__) == tf_gc.__all__
    for module in (tf_gc, tf_gc.keras, tf_gc.ops):
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"
    assert {"keras", "ByVariable", "NoCompression", "OneBit", "Quantized", "TwoBit"} < {
        *tf_gc.__all__
    }
    assert issubclass(tf_gc.keras.BackupAndRestore, keras.callbacks.BackupAndRestore)
    assert issubclass(tf_gc.keras.CompressionMonitor, keras.callbacks.Callback)
