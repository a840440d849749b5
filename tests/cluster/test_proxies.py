"""Which proxy variable is named for which workers."""

import pytest

from tf_gc.cluster.proxies import proxy_hint

ADDRESSES = ["10.0.0.1:8888", "node-2.cluster.local:8888", "[fd00::1]:8888"]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_proxy_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")  # gRPC does not read it
    assert proxy_hint(ADDRESSES) == ""


def test_the_first_one_that_grpc_reads_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://one:3128")
    monkeypatch.setenv("https_proxy", "http://two:3128")
    assert proxy_hint(ADDRESSES) == (
        "https_proxy=http://two:3128 is set, and gRPC connects to 10.0.0.1, node-2.cluster.local, "
        "fd00::1 through that proxy: unset it, or set "
        "no_proxy=10.0.0.1,node-2.cluster.local,fd00::1. "
    )
    monkeypatch.setenv("grpc_proxy", "http://three:3128")
    assert proxy_hint(ADDRESSES).startswith("grpc_proxy=http://three:3128 is set")


@pytest.mark.parametrize("name", ["no_proxy", "no_grpc_proxy"])
@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("localhost, .Cluster.local", ["10.0.0.1", "fd00::1"]),
        ("10.0.0.0/8,fd00::/8", ["node-2.cluster.local"]),
        ("10.0.0.1,node-2.cluster.local,fd00::1", []),
    ],
)
def test_exceptions_are_not_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, left: list[str]
) -> None:
    monkeypatch.setenv("http_proxy", "http://one:3128")
    monkeypatch.setenv(name, value)
    hint = proxy_hint(ADDRESSES)
    assert bool(hint) == bool(left)
    if left:
        assert f"gRPC connects to {', '.join(left)} through" in hint


def test_only_the_first_list_of_exceptions_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://one:3128")
    monkeypatch.setenv("no_grpc_proxy", "elsewhere")
    monkeypatch.setenv("no_proxy", "10.0.0.1")
    assert "10.0.0.1" in proxy_hint(ADDRESSES[:1])
