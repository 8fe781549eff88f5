"""The store `zip`: a result is one archive, `dovetail compile model.onnx --backend host -o out.zip`."""

import weakref
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail.plugin import DovetailError, ResultStore


class ZipStore(ResultStore):
    """Packs the folders that dovetail-onnx writes."""

    suffixes = (".zip",)

    def save(self, compiled, path, *, external=None, progress=None):
        from dovetail_onnx import FolderStore, replacing_file

        with TemporaryDirectory() as folder:
            FolderStore().save(compiled, Path(folder), external=external, progress=progress)
            with replacing_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name in sorted(Path(folder).rglob("*")):
                    archive.write(name, name.relative_to(folder))

    def load(self, path, plugins):
        from dovetail_onnx import FolderStore

        folder = self._unpacked(path)
        compiled = FolderStore().load(Path(folder.name), plugins)
        weakref.finalize(compiled, folder.cleanup)  # its weights and artifacts stay in files until it goes
        return compiled

    def load_plan(self, path):
        from dovetail_onnx import FolderStore

        with self._unpacked(path) as folder:
            return FolderStore().load_plan(Path(folder))

    @staticmethod
    def _unpacked(path):
        folder = TemporaryDirectory()
        try:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder.name)
        except (OSError, zipfile.BadZipFile) as error:
            folder.cleanup()
            raise DovetailError(f"{path} is no archive of a result: {error}", "name what `-o out.zip` wrote") from error
        return folder
