"""Builds the kernel, and writes the README for a package index; `setup.cfg` has everything else.

Without Cython or a compiler the package is installed without the kernel, and is slower.

The project has no public address that links of the README could be completed with. So a link becomes the name of its
file, which the source distribution contains, and the picture is left out.
"""

import os
import re
from pathlib import Path

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None

KERNEL = Path("simpleconsumer/kernel")


def extensions() -> list[Extension]:
    """Return the kernel, if it can be translated here; an installation goes on if it cannot be compiled."""
    if cythonize is None:
        return []
    parts = sorted(str(path) for pattern in ("*.pxi", "*.h") for path in KERNEL.glob(pattern))
    kernel = Extension(
        "simpleconsumer.kernel._kernel", [str(KERNEL / "_kernel.pyx")], include_dirs=[str(KERNEL)], depends=parts,
        extra_compile_args=["-O3"] if os.name == "posix" else [],
    )  # fmt: skip
    [translated] = cythonize([kernel], build_dir="build/cython", language_level=3)
    translated.optional = True
    return [translated]


def for_a_package_index(readme: str) -> str:
    """Return the README with links to files of the project replaced by the names of these files."""
    without_pictures = re.sub(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n\n", "", readme, flags=re.MULTILINE)
    return re.sub(r"\[[^\]]*\]\((?!https?://|#)([^)#]*)[^)]*\)", r"`\1`", without_pictures)


setup(
    ext_modules=extensions(),
    long_description=for_a_package_index(Path(__file__).with_name("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
