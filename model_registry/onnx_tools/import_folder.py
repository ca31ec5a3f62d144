"""Converts a folder that another tool saved (MLflow, Hugging Face) into an ONNX file and example events."""

from pathlib import Path

from model_registry.errors import Refused
from model_registry.onnx_tools import hugging_face_folder, import_hugging_face, import_mlflow, mlflow_folder
from model_registry.onnx_tools.imported_model import ImportedModel


def convert(folder: Path, scratch: Path, *, trust_pickle: bool = False) -> ImportedModel:
    """Convert the model in a folder.

    Args:
        folder: The folder that MLflow saved (with MLmodel) or Hugging Face (with config.json and tokenizer.json).
        scratch: A folder for the converted model and its examples.
        trust_pickle: Whether a pickle in the folder may be loaded.

    Raises:
        Refused: Neither tool saved the folder, or its model cannot be converted.
    """
    if (folder / mlflow_folder.MLMODEL).is_file():
        return import_mlflow.convert(folder, scratch, trust_pickle=trust_pickle)
    if (folder / hugging_face_folder.TOKENIZER).is_file() and (folder / hugging_face_folder.CONFIG).is_file():
        return import_hugging_face.convert(folder, scratch)
    raise Refused(
        f"{folder} is a folder without {mlflow_folder.MLMODEL}, and without {hugging_face_folder.CONFIG} and "
        f"{hugging_face_folder.TOKENIZER}",
        "name an ONNX file, a model folder of MLflow, or a folder of Hugging Face with an ONNX export",
    )
