"""Names the exporter to ONNX for a model file in another format. Only the file's suffix is used; the file is not opened."""

from pathlib import Path

_EXPORTERS = (
    (
        (".pkl", ".pickle", ".joblib", ".skops"),
        "a pickle is not loaded here, because it runs code: load it where it was trained, and export it there with skl2onnx "
        "(scikit-learn) or onnxmltools (LightGBM, XGBoost)",
    ),
    ((".pt", ".pth", ".ckpt", ".safetensors"), "build the module with torch, load the weights, and call torch.onnx.export"),
    ((".h5", ".hdf5", ".keras", ".tflite", ".pb"), "export it with tf2onnx, or with model.export(..., format='onnx') of Keras"),
    ((".cbm",), "load it with CatBoost, and call model.save_model(FILE, format='onnx')"),
    ((".xgb", ".ubj", ".json", ".bst"), "load it with XGBoost, and export it with onnxmltools.convert_xgboost"),
    ((".lgb", ".txt"), "load it with LightGBM, and export it with onnxmltools.convert_lightgbm"),
)


def hint(path: Path) -> str:
    """Return how to export the model in a file that is not ONNX."""
    suffix = path.suffix.lower()
    remedy = next((text for suffixes, text in _EXPORTERS if suffix in suffixes), None)
    return f"{remedy}; recipes: model_registry/docs/your-own-model.md" if remedy else "export the model again"
