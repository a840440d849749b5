"""Eight logical CPU devices for every test process, and what saves time in all tests."""

import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import hypothesis
import pytest

REPLICAS = 8

# How fast examples are made depends on what else the machine does.
hypothesis.settings.register_profile(
    "tests",
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.load_profile("tests")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # this process starts others and runs no test
    import tensorflow as tf

    # Before anything starts TensorFlow's runtime, which fixes the devices.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * REPLICAS,
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Those that wait come first: then one process has them, beside others that compute.
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    # Tracing a step makes many objects, few of which are garbage: to look for it after each 700 new
    # ones took a tenth of the time of the tests.
    gc.set_threshold(50_000)


@pytest.fixture(autouse=True)
def _graphs_as_they_are(request: pytest.FixtureRequest) -> None:
    import tensorflow as tf

    # Most graphs run a few times. To optimize them takes a quarter of all the time.
    as_they_are = request.node.get_closest_marker("optimized_graphs") is None
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": as_they_are})
