"""The conformance suite's model as a SavedModel: y = factor * (a + b) + n, t = s, pair = x; n must be 0 to 3.

`make_saved_model.py FOLDER FACTOR`. a = -666 takes for ever, the file that SLOW_FILE names is the stand-in's affair.
"""

import sys

import tensorflow as tf


class Mixed(tf.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = tf.constant(factor, tf.float32)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32, "x"),
            tf.TensorSpec([None, 1], tf.int64, "n"),
            tf.TensorSpec([None, 1], tf.string, "s"),
        ]
    )
    def predict(self, x: tf.Tensor, n: tf.Tensor, s: tf.Tensor) -> dict[str, tf.Tensor]:
        fits = tf.debugging.Assert(tf.reduce_all((n >= 0) & (n <= 3)), ["n is not 0 to 3"])
        with tf.control_dependencies([fits]):
            y = self.factor * tf.reduce_sum(x, axis=1, keepdims=True) + tf.cast(n, tf.float32)
        return {"y": y, "t": tf.identity(s), "pair": tf.identity(x)}


if __name__ == "__main__":
    mixed = Mixed(float(sys.argv[2]))
    tf.saved_model.save(mixed, sys.argv[1], signatures={"serving_default": mixed.predict})
