"""Writes python.safetensors with the Python package: pip install safetensors numpy."""
import numpy as np
from safetensors.numpy import save_file

save_file(
    {
        "model.embed_tokens.weight": np.arange(20, dtype=np.float32).reshape(5, 4) / 7,
        "model.norm.weight": np.array([1, -0.0, np.inf, 1e-45], np.float32),
        "b.f64": np.arange(3, dtype=np.float64) / 3,
        "z.i64": np.array([[-1, 2**40]], np.int64),
        "a.u32": np.array([2**32 - 1], np.uint32),
        "a.i32": np.array([-2], np.int32),
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 4), np.float32),
        "u8": np.arange(3, dtype=np.uint8),
        "i8": np.array([-1], np.int8),
        "flag": np.array([True, False]),
        "f16": np.array([0.5], np.float16),
        "i16": np.array([-3], np.int16),
        'näme "q" <&>': np.ones((2,), np.float32),
    },
    "python.safetensors",
    metadata={"format": "pt"},
)
