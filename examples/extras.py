"""Ends an example that lacks what it needs, with the command that installs it.

Examples import it first: those that start workers would otherwise start ones that fail.
"""

import importlib.util
import sys

packages = {"tf_gc": "tf_gc", "sklearn": "scikit-learn"}
missing = [packages[name] for name in packages if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"the examples need {' and '.join(missing)}: pip install '.[examples]'")
