"""A few expected files out of a .tar.gz, and nothing else."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from instant.data.files import locked, replace, sync_folder
from instant.data.progress import Report, reporting
from instant.errors import InputError


def unpack(archive: Path, folder: str, files: Sequence[str], *, progress: bool = True) -> Path:
    """Extract `folder/file` for those of `files` that are not there yet; returns the folder beside the archive.

    The files appear together after the whole archive was read and found harmless: members that are links or
    devices, or whose names leave the folder, refuse the archive.
    """
    target = archive.parent / folder
    try:
        with locked(archive):
            missing = [file for file in files if not (target / file).is_file()]
            if missing:
                with (
                    reporting(
                        f"Unpacking {archive.name}", f"into {target}", archive.stat().st_size, progress
                    ) as report,
                    tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{folder}.") as scratch,
                ):
                    _extract(archive, {f"{folder}/{file}": Path(scratch, file) for file in missing}, report)
                    target.mkdir(exist_ok=True)
                    for file in missing:
                        replace(Path(scratch, file), target / file)
                    sync_folder(target)
    except OSError as error:
        raise InputError(
            f"Cannot unpack {archive} into {target}: {error.strerror or error}. Free some space, or copy the "
            f"archive to a folder you can write to and name that."
        ) from error
    return target


def _extract(archive: Path, wanted: dict[str, Path], report: Report) -> None:
    found = set()
    try:
        with archive.open("rb") as packed, tarfile.open(fileobj=packed, mode="r|gz") as members:
            for member in members:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
                    raise InputError(
                        f"{archive}: member {member.name!r} is a link, a device or leads out of the folder; "
                        f"expected plain files only. Delete the archive and get it from its publisher."
                    )
                content = members.extractfile(member) if str(path) in wanted else None
                if content is not None:
                    free = shutil.disk_usage(archive.parent).free
                    if member.size > free:
                        raise InputError(
                            f"{archive}: {member.name} needs {member.size:,} bytes, {archive.parent} has "
                            f"{free:,} free. Free some space or choose another folder."
                        )
                    with wanted[str(path)].open("wb") as file:
                        while block := content.read(1 << 20):
                            file.write(block)
                            report(packed.tell())
                        file.flush()
                        os.fsync(file.fileno())
                    found.add(str(path))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InputError(
            f"{archive} ({archive.stat().st_size:,} bytes) is not a whole .tar.gz archive: {error}. Delete it and "
            f"load again to get a good copy."
        ) from error
    absent = sorted(wanted.keys() - found)
    if absent:
        raise InputError(f"{archive} does not hold {', '.join(absent)}. Delete it and load again to get a good copy.")
