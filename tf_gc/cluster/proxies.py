"""The proxy through which gRPC, and so TensorFlow, would reach other workers.

The variables and their order are gRPC's (doc/environment_variables.md): lower case only, and also
for addresses of this host.
"""

import ipaddress
import os
from collections.abc import Iterable

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")


def proxy_hint(addresses: Iterable[str]) -> str:
    """Says which variable sends connections to workers through a proxy; empty if none does.

    Args:
      addresses: of the workers, each "host:port".
    """
    name = next((name for name in _PROXIES if os.environ.get(name)), None)
    if name is None:
        return ""
    exceptions = next((os.environ[name] for name in _EXCEPTIONS if os.environ.get(name)), "")
    entries = [entry.strip().lower() for entry in exceptions.split(",") if entry.strip()]
    hosts = dict.fromkeys(address.rpartition(":")[0].strip("[]") for address in addresses)
    proxied = [host for host in hosts if not any(_matches(host.lower(), e) for e in entries)]
    if not proxied:
        return ""
    return (
        f"{name}={os.environ[name]} is set, and gRPC connects to {', '.join(proxied)} through that "
        f"proxy: unset it, or set no_proxy={','.join([*entries, *proxied])}. "
    )


def _matches(host: str, entry: str) -> bool:
    """Whether an entry of no_proxy is the end of a host's name, or a network that it is in."""
    if host.endswith(entry):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
