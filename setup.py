"""Writes the README for a package index, where links to files of the project would lead nowhere.

`setup.cfg` has everything else. The project has no public address that such links could be completed with. So a link
becomes the name of its file, which the source distribution contains, and the picture is left out.
"""

import re
from pathlib import Path

from setuptools import setup


def for_a_package_index(readme: str) -> str:
    """Return the README with links to files of the project replaced by the names of these files."""
    without_pictures = re.sub(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n\n", "", readme, flags=re.MULTILINE)
    return re.sub(r"\[[^\]]*\]\((?!https?://|#)([^)#]*)[^)]*\)", r"`\1`", without_pictures)


setup(
    long_description=for_a_package_index(Path(__file__).with_name("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
