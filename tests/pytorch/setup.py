# SPDX-License-Identifier: BSD-3-Clause
"""Builds the adapter for the torch that is installed, by CMake, into the package."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent


def torch_package() -> tuple[str, str]:
    """Folder and version of the torch to build for."""
    try:
        import torch
    except ImportError as error:
        raise SystemExit(
            f"symmem_torch is built for the torch that is installed, and there is none: {error}.\n"
            "Install torch first, and build with: pip install --no-build-isolation tests/pytorch"
        ) from error
    return torch.__path__[0], torch.__version__


class Build(build_py):
    def run(self) -> None:
        super().run()
        folder, version = torch_package()
        libraries = pathlib.Path(self.build_lib) / "symmem_torch" / "lib"
        libraries.mkdir(parents=True, exist_ok=True)
        made = self.make(folder)
        for library in made.glob("*.so*"):
            shutil.copy2(library, libraries / library.name)
        (libraries / "torch_version").write_text(version + "\n")

    def make(self, torch_folder: str) -> pathlib.Path:
        build = pathlib.Path(self.build_lib).resolve().parent / "cmake"
        jobs = str(len(os.sched_getaffinity(0)))
        subprocess.run(
            [
                *("cmake", "-S", str(HERE), "-B", str(build)),
                *(f"-DSYMMEM_TORCH={torch_folder}", f"-DPython3_EXECUTABLE={sys.executable}"),
            ],
            check=True,
        )
        subprocess.run(
            ["cmake", "--build", str(build), "--target", "symmem_torch_methods", "--parallel", jobs],
            check=True,
        )
        return build / "symmem" / "lib"


class BinaryDistribution(Distribution):
    """It has libraries of this machine's kind, though setuptools did not make them."""

    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": Build}, distclass=BinaryDistribution)
