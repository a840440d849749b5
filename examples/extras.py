"""Ends an example that lacks what it needs, with the command that installs it.

Examples import it first: those that start workers would otherwise start ones that fail.
"""

import importlib.util
import sys

missing = [name for name in ("tf_gc", "sklearn") if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"there is no {' and no '.join(missing)} here: run pip install '.[examples]' first")
