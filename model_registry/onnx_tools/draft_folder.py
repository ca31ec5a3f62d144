"""Writes the folder of a draft: the model, the files of its weights, and the drafted texts."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from model_registry import atomic_files, package
from model_registry.atomic_files import is_confined
from model_registry.errors import Refused
from model_registry.onnx_tools.onnx_reader import OnnxFile


def write(model: Path, onnx_file: OnnxFile, folder: Path, texts: Mapping[str, str]) -> list[str]:
    """Write the model, its weights and the drafted `texts` (by file name) into a folder; write none if one of them exists.

    Returns:
        The paths of the written files, relative to the folder.

    Raises:
        Refused: A file exists.
        Unreachable: The folder cannot be written.
    """
    # A model that is already in the folder is not written again.
    in_place = (folder / package.MODEL).exists() and (folder / package.MODEL).samefile(model)
    beside = sorted({weights.location for weights in onnx_file.external if is_confined(weights.location)})
    copies = {} if in_place else {package.MODEL: model, **{name: model.parent / name for name in beside}}
    with atomic_files.report_os_errors(f"the folder {folder}"):
        for name in (*copies, *texts):
            if (folder / name).exists() or (folder / name).is_symlink():
                raise Refused(f"{folder / name} exists, and nothing is overwritten", "choose another folder with --into")
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in copies.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
        for name, text in texts.items():
            with (folder / name).open("x", encoding="utf-8") as stream:
                stream.write(text)
    return [*copies, *texts]
