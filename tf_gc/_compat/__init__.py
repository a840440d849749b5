"""The private parts of TensorFlow that tf_gc needs, and how it takes them from a library.

No other module of tf_gc imports `tensorflow.python` or uses private attributes that
`_compat.attributes` does not list. `tf_gc.keras.keras3.private` is the same for Keras.
"""

from tf_gc._compat.attributes import require_attributes
from tf_gc._compat.functions import *
from tf_gc._compat.symbols import *
